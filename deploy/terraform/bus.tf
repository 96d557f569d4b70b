# The bus: what Interlock decides goes out here. Rules bring back what people must hear of, and what others say.

resource "aws_cloudwatch_event_bus" "this" {
  name               = "${var.name}-events"
  kms_key_identifier = var.kms_key_arn == "" ? null : var.kms_key_arn
  tags               = var.tags
}

resource "aws_cloudwatch_event_rule" "alerts" {
  name           = "${var.name}-alerts"
  description    = "Events that are alerts"
  event_bus_name = aws_cloudwatch_event_bus.this.name
  event_pattern  = file("${path.module}/alert-pattern.json")
  tags           = var.tags
}

resource "aws_cloudwatch_event_rule" "foreign" {
  name           = "${var.name}-foreign"
  description    = "Events of other publishers; never Interlock's own, which would loop"
  event_bus_name = aws_cloudwatch_event_bus.this.name
  event_pattern  = jsonencode({ source = [{ "anything-but" = ["interlock"] }] })
  tags           = var.tags
}

resource "aws_cloudwatch_event_rule" "alarms" {
  # CloudWatch tells of alarms on the default bus, and on no other.
  name        = "${var.name}-alarms"
  description = "Alarms of this installation"
  event_pattern = jsonencode({
    source        = ["aws.cloudwatch"]
    "detail-type" = ["CloudWatch Alarm State Change"]
    detail        = { alarmName = [{ prefix = "${var.name}-" }] }
  })
  tags = var.tags
}

locals {
  targets = {
    alerts        = { rule = aws_cloudwatch_event_rule.alerts, queue = "alerts" }
    foreign       = { rule = aws_cloudwatch_event_rule.foreign, queue = "events" }
    alarms        = { rule = aws_cloudwatch_event_rule.alarms, queue = "events" }
    alarms-people = { rule = aws_cloudwatch_event_rule.alarms, queue = "alerts" }
  }
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = local.targets

  rule           = each.value.rule.name
  event_bus_name = each.value.rule.event_bus_name
  target_id      = each.key
  arn            = aws_sqs_queue.this[each.value.queue].arn

  # What cannot be put into the queue at all is kept, not dropped.
  dead_letter_config {
    arn = aws_sqs_queue.dead[each.value.queue].arn
  }

  retry_policy {
    maximum_event_age_in_seconds = 86400
    maximum_retry_attempts       = 185
  }
}

data "aws_iam_policy_document" "dead" {
  for_each = { alerts = ["alerts", "alarms"], events = ["foreign", "alarms"] }

  statement {
    sid       = "BusGivesUp"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.dead[each.key].arn]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values = [for name in each.value : {
        alerts  = aws_cloudwatch_event_rule.alerts.arn
        foreign = aws_cloudwatch_event_rule.foreign.arn
        alarms  = aws_cloudwatch_event_rule.alarms.arn
      }[name]]
    }
  }
}

resource "aws_sqs_queue_policy" "dead" {
  for_each = data.aws_iam_policy_document.dead

  queue_url = aws_sqs_queue.dead[each.key].id
  policy    = each.value.json
}
