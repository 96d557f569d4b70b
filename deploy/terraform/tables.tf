# The four tables. A test compares them with what the program itself would make (worker/store/dynamodb/schema.py).

locals {
  makes_tables = var.table_names == null

  table_names = local.makes_tables ? {
    control = "${var.name}-control"
    joblog  = "${var.name}-joblog"
    rerun   = "${var.name}-rerun"
    events  = "${var.name}-events"
  } : var.table_names

  tables = {
    control = {
      streamed   = true
      attributes = { PK = "S", SK = "S", listPk = "S", listSk = "S", active = "S" }
      indexes = {
        LISTS = { partition = "listPk", sort = "listSk", projected = [] }
        ACTIVE = {
          partition = "active"
          sort      = "SK"
          projected = ["breachAt", "owner", "since", "state", "timeoutAt", "warnedAt", "warningAt", "windowEndsAt"]
        }
      }
    }
    joblog = { streamed = true, attributes = { PK = "S", SK = "S" }, indexes = {} }
    rerun  = { streamed = false, attributes = { PK = "S", SK = "S" }, indexes = {} }
    events = {
      streamed   = true
      attributes = { PK = "S", SK = "S", eventType = "S", timestamp = "N" }
      indexes    = { GSI1 = { partition = "eventType", sort = "timestamp", projected = [] } }
    }
  }
}

resource "aws_dynamodb_table" "this" {
  for_each = local.makes_tables ? local.tables : {}

  name                        = local.table_names[each.key]
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "PK"
  range_key                   = "SK"
  stream_enabled              = each.value.streamed
  stream_view_type            = each.value.streamed ? "NEW_IMAGE" : null
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  dynamic "attribute" {
    for_each = each.value.attributes
    content {
      name = attribute.key
      type = attribute.value
    }
  }

  dynamic "global_secondary_index" {
    for_each = each.value.indexes
    content {
      name               = global_secondary_index.key
      hash_key           = global_secondary_index.value.partition
      range_key          = global_secondary_index.value.sort
      projection_type    = length(global_secondary_index.value.projected) > 0 ? "INCLUDE" : "ALL"
      non_key_attributes = length(global_secondary_index.value.projected) > 0 ? global_secondary_index.value.projected : null
    }
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn == "" ? null : var.kms_key_arn
  }
}

data "aws_dynamodb_table" "given" {
  for_each = local.makes_tables ? {} : var.table_names

  name = each.value
}

locals {
  table_arns = {
    for table in keys(local.tables) :
    table => local.makes_tables ? aws_dynamodb_table.this[table].arn : data.aws_dynamodb_table.given[table].arn
  }
  stream_arns = {
    for table, shape in local.tables :
    table => local.makes_tables ? aws_dynamodb_table.this[table].stream_arn : data.aws_dynamodb_table.given[table].stream_arn
    if shape.streamed
  }
}
