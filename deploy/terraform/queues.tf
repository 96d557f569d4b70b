# Three queues, each with a dead-letter queue. Alerts wait out a long outage of the chat in their queue: 14 days.

locals {
  queues = {
    alerts  = { visibility_s = 120 }
    events  = { visibility_s = 60 }
    sensors = { visibility_s = 120 }
  }
}

resource "aws_sqs_queue" "dead" {
  # A dead letter of a queue has no dead-letter queue of its own.
  for_each = local.queues

  name                              = "${var.name}-${each.key}-dlq"
  message_retention_seconds         = 1209600
  sqs_managed_sse_enabled           = var.kms_key_arn == "" ? true : null
  kms_master_key_id                 = var.kms_key_arn == "" ? null : var.kms_key_arn
  kms_data_key_reuse_period_seconds = var.kms_key_arn == "" ? null : 3600
  tags                              = var.tags
}

resource "aws_sqs_queue" "this" {
  for_each = local.queues

  name                              = "${var.name}-${each.key}"
  message_retention_seconds         = 1209600
  visibility_timeout_seconds        = each.value.visibility_s
  receive_wait_time_seconds         = 20
  sqs_managed_sse_enabled           = var.kms_key_arn == "" ? true : null
  kms_master_key_id                 = var.kms_key_arn == "" ? null : var.kms_key_arn
  kms_data_key_reuse_period_seconds = var.kms_key_arn == "" ? null : 3600
  tags                              = var.tags

  # The worker moves what it cannot handle itself, with the reason. This is for messages that kill their reader.
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead[each.key].arn
    maxReceiveCount     = 100
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "dead" {
  for_each = local.queues

  queue_url = aws_sqs_queue.dead[each.key].id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.this[each.key].arn]
  })
}

data "aws_iam_policy_document" "queue" {
  for_each = local.queues

  dynamic "statement" {
    for_each = var.allow_plain_http ? [] : [true]
    content {
      sid       = "OnlyEncrypted"
      effect    = "Deny"
      actions   = ["sqs:*"]
      resources = [aws_sqs_queue.this[each.key].arn]

      principals {
        type        = "AWS"
        identifiers = ["*"]
      }

      condition {
        test     = "Bool"
        variable = "aws:SecureTransport"
        values   = ["false"]
      }
    }
  }

  dynamic "statement" {
    for_each = length(local.senders[each.key].rules) > 0 ? [local.senders[each.key].rules] : []
    content {
      sid       = "Bus"
      actions   = ["sqs:SendMessage"]
      resources = [aws_sqs_queue.this[each.key].arn]

      principals {
        type        = "Service"
        identifiers = ["events.amazonaws.com"]
      }

      condition {
        test     = "ArnEquals"
        variable = "aws:SourceArn"
        values   = statement.value
      }
    }
  }

  dynamic "statement" {
    for_each = length(local.senders[each.key].buckets) > 0 ? [local.senders[each.key].buckets] : []
    content {
      sid       = "Buckets"
      actions   = ["sqs:SendMessage"]
      resources = [aws_sqs_queue.this[each.key].arn]

      principals {
        type        = "Service"
        identifiers = ["s3.amazonaws.com"]
      }

      condition {
        test     = "ArnEquals"
        variable = "aws:SourceArn"
        values   = statement.value
      }

      condition {
        test     = "StringEquals"
        variable = "aws:SourceAccount"
        values   = [data.aws_caller_identity.this.account_id]
      }
    }
  }

  dynamic "statement" {
    for_each = length(local.senders[each.key].topics) > 0 ? [local.senders[each.key].topics] : []
    content {
      sid       = "Topics"
      actions   = ["sqs:SendMessage"]
      resources = [aws_sqs_queue.this[each.key].arn]

      principals {
        type        = "Service"
        identifiers = ["sns.amazonaws.com"]
      }

      condition {
        test     = "ArnEquals"
        variable = "aws:SourceArn"
        values   = statement.value
      }
    }
  }
}

locals {
  senders = {
    alerts = {
      rules   = [aws_cloudwatch_event_rule.alerts.arn, aws_cloudwatch_event_rule.alarms.arn]
      buckets = []
      topics  = []
    }
    events = {
      rules = concat(
        [aws_cloudwatch_event_rule.foreign.arn, aws_cloudwatch_event_rule.alarms.arn],
        [for rule in aws_cloudwatch_event_rule.jobs : rule.arn],
      )
      buckets = []
      topics  = []
    }
    sensors = {
      rules   = []
      buckets = var.inbox_bucket_arns
      topics  = var.inbox_topic_arns
    }
  }
}

resource "aws_sqs_queue_policy" "this" {
  for_each = local.queues

  queue_url = aws_sqs_queue.this[each.key].id
  policy    = data.aws_iam_policy_document.queue[each.key].json
}
