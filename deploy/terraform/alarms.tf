# Alarms. Their names begin with the installation's, so that the bus brings them back as INFRA_ALARM events too.

locals {
  alarm_actions = var.alarm_topic_arn == "" ? [] : [var.alarm_topic_arn]

  # `missing`: what it means if nothing is reported. A worker that is ready reports every minute.
  metric_alarms = {
    heartbeat     = { metric = "Heartbeat", statistic = "Sum", comparison = "LessThanThreshold", threshold = 1, minutes = 5, missing = "breaching", duty = "", text = "No worker of this service was ready for five minutes" }
    consumer-lag  = { metric = "ConsumerLagSeconds", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 300, minutes = 5, missing = "notBreaching", duty = "engine", text = "Changes wait for more than five minutes before a worker handles them" }
    relay-lag     = { metric = "RelayLagSeconds", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 300, minutes = 5, missing = "notBreaching", duty = "relay", text = "Events wait for more than five minutes before they are published" }
    loop-lag      = { metric = "LoopLagSeconds", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", duty = "", text = "The event loop was more than a second late: the task has too little CPU, or something blocks it" }
    sessions-lost = { metric = "SessionsLost", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 3, minutes = 15, missing = "notBreaching", duty = "", text = "Workers lose their sessions repeatedly" }
    dead-letters  = { metric = "DeadLetters", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", duty = "", text = "A record could not be processed and was kept as a dead letter" }
    runs-failed   = { metric = "RunsFailed", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", duty = "engine", text = "A run failed" }
    alert-failure = { metric = "AlertFailures", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 5, minutes = 15, missing = "notBreaching", duty = "alerts", text = "Alerts cannot be delivered" }
  }

  service_alarms = merge([
    for name, service in var.services : {
      for key, alarm in local.metric_alarms : "${name}-${key}" => merge(alarm, { service = name })
      if alarm.duty == "" || contains(service.duties, alarm.duty)
    }
  ]...)
}

resource "aws_cloudwatch_metric_alarm" "service" {
  for_each = local.service_alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.text}. See deploy/runbook.md."
  namespace           = "Interlock"
  metric_name         = each.value.metric
  dimensions          = { Service = "${var.name}-${each.value.service}" }
  statistic           = each.value.statistic
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  period              = each.value.minutes * 60
  evaluation_periods  = 1
  treat_missing_data  = each.value.missing
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_log_metric_filter" "errors" {
  name           = "${var.name}-errors"
  log_group_name = aws_cloudwatch_log_group.this.name
  pattern        = "{ $.level = \"error\" || $.level = \"critical\" }"

  metric_transformation {
    namespace = "Interlock"
    # By the installation's name: a filter with a default value can have no dimension, and there may be others here.
    name          = "${var.name}-ErrorLines"
    value         = "1"
    default_value = "0"
  }
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  alarm_name          = "${var.name}-errors"
  alarm_description   = "A worker logged an error. See deploy/runbook.md for each kind."
  namespace           = "Interlock"
  metric_name         = aws_cloudwatch_log_metric_filter.errors.metric_transformation[0].name
  statistic           = "Sum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "dead" {
  for_each = local.queues

  alarm_name          = "${var.name}-${each.key}-dlq"
  alarm_description   = "Messages of the ${each.key} queue could not be processed. List them with `interlock dlq list`."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.dead[each.key].name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "waiting" {
  for_each = local.queues

  alarm_name          = "${var.name}-${each.key}-waiting"
  alarm_description   = "Messages of the ${each.key} queue have waited for more than fifteen minutes."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.this[each.key].name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 900
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}
