# Pipeline files become CONFIG rows as they are: the worker reads the file's own text, so that no second reader of YAML
# can make something else of a date or a `no`. It checks each row when it arrives, and keeps the last good version in
# force if a new one cannot be understood. Run `interlock validate` on the files before you apply.

locals {
  pipeline_files = var.pipelines_path == "" ? toset([]) : fileset(var.pipelines_path, "*.{yaml,yml}")
  calendar_files = var.calendars_path == "" ? toset([]) : fileset(var.calendars_path, "*.{yaml,yml}")

  calendars = {
    for file in local.calendar_files :
    yamldecode(file("${var.calendars_path}/${file}")).name => replace(file("${var.calendars_path}/${file}"), "/(?m)^name:.*$/", "")
  }

  pipelines = {
    for file in local.pipeline_files : replace(file, "/\\.ya?ml$/", "") => file("${var.pipelines_path}/${file}")
  }

  # Calendars that a file names go along with it, as its own section `calendars`.
  calendars_used = {
    for id, text in local.pipelines : id => {
      for name, body in local.calendars : name => body
      if length(regexall("(?m)^\\s*(?:- *)?(?:calendar|holidays):.*\\b${name}\\b", text)) > 0
    } if length(regexall("(?m)^calendars:", text)) == 0
  }
}

resource "aws_dynamodb_table_item" "pipeline" {
  for_each = local.pipelines

  table_name = local.table_names.control
  hash_key   = "PK"
  range_key  = "SK"
  item = jsonencode({
    PK     = { S = "PIPELINE#${each.key}" }
    SK     = { S = "CONFIG" }
    listPk = { S = "PIPELINES" }
    listSk = { S = each.key }
    config = { S = join("\n", concat(
      [each.value],
      length(lookup(local.calendars_used, each.key, {})) > 0 ? ["calendars:"] : [],
      [for name, body in lookup(local.calendars_used, each.key, {}) : "  ${name}:\n    ${indent(4, body)}"],
    )) }
  })

  depends_on = [aws_dynamodb_table.this]
}
