# Alarms. Their names begin with the installation's, so that the bus brings them back as INFRA_ALARM events too.

locals {
  alarm_actions = var.alarm_topic_arn == "" ? [] : [var.alarm_topic_arn]

  # `missing`: what it means if nothing is reported. A worker that is ready reports every minute.
  metric_alarms = {
    heartbeat     = { metric = "Heartbeat", statistic = "Sum", comparison = "LessThanThreshold", threshold = 1, minutes = 5, missing = "breaching", role = "", text = "No worker of this service was ready for five minutes" }
    consumer-lag  = { metric = "ConsumerLagSeconds", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 300, minutes = 5, missing = "notBreaching", role = "engine", text = "Changes wait for more than five minutes before a worker handles them" }
    relay-lag     = { metric = "RelayLagSeconds", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 300, minutes = 5, missing = "notBreaching", role = "relay", text = "Events wait for more than five minutes before they are published" }
    loop-lag      = { metric = "LoopLagSeconds", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", role = "", text = "The event loop was more than a second late: the task has too little CPU, or something blocks it" }
    sessions-lost = { metric = "SessionsLost", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 3, minutes = 15, missing = "notBreaching", role = "", text = "Workers lose their sessions repeatedly" }
    dead-letters  = { metric = "DeadLettersHeld", statistic = "Maximum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", role = "scheduler", text = "Records that could not be processed are kept as dead letters, and nobody has replayed or dropped them" }
    runs-failed   = { metric = "RunsFailed", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", role = "engine", text = "A run failed" }
    data-loss     = { metric = "DataLossSuspected", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 1, minutes = 5, missing = "notBreaching", role = "", text = "A stream deleted changes before they were read" }
    alert-failure = { metric = "AlertFailures", statistic = "Sum", comparison = "GreaterThanOrEqualToThreshold", threshold = 5, minutes = 15, missing = "notBreaching", role = "alerts", text = "Alerts cannot be delivered" }
  }

  # Alarms of AWS's own metrics. The thresholds of all alarms, and whether there is one, can be set with `alarms`.
  other_alarms = {
    errors             = { threshold = 1, minutes = 5 }
    dlq                = { threshold = 1, minutes = 5 }
    waiting            = { threshold = 900, minutes = 5 }
    throttled          = { threshold = 10, minutes = 5 }
    system-errors      = { threshold = 5, minutes = 5 }
    failed-invocations = { threshold = 1, minutes = 5 }
    tasks-missing      = { threshold = 1, minutes = 10 }
    web-unhealthy      = { threshold = 1, minutes = 5 }
    web-errors         = { threshold = 10, minutes = 5 }
    web-slow           = { threshold = 5, minutes = 15 }
  }

  # Each failed run is an alert already, so this one is for those who ask for it.
  unasked_alarms = ["runs-failed"]

  alarm_settings = {
    for key, alarm in merge(
      { for key, alarm in local.metric_alarms : key => { threshold = alarm.threshold, minutes = alarm.minutes } },
      local.other_alarms,
      ) : key => {
      enabled   = try(coalesce(var.alarms[key].enabled), !contains(local.unasked_alarms, key))
      threshold = try(coalesce(var.alarms[key].threshold), alarm.threshold)
      seconds   = try(coalesce(var.alarms[key].minutes), alarm.minutes) * 60
    }
  }
  alarms_on = { for key, alarm in local.alarm_settings : key => alarm if alarm.enabled }

  service_alarms = merge([
    for name, service in var.services : {
      for key, alarm in local.metric_alarms : "${name}-${key}" => merge(alarm, local.alarm_settings[key], { service = name })
      if contains(keys(local.alarms_on), key) && (alarm.role == "" || contains(service.duties, alarm.role))
    }
  ]...)

  # What people and programs notice of the console, as its load balancer counts it.
  web_alarms = {
    web-unhealthy = { metric = "UnHealthyHostCount", statistic = "Minimum", text = "A task of the console does not answer its health check, or says that its lists stand still" }
    web-errors    = { metric = "HTTPCode_Target_5XX_Count", statistic = "Sum", text = "The console and the HTTP API answer with errors of the server" }
    web-slow      = { metric = "TargetResponseTime", statistic = "p95", text = "The console and the HTTP API answer slowly" }
  }

  # What workers call most. DynamoDB counts its own errors by operation, and each metric of an alarm is paid for.
  store_operations = ["GetItem", "Query", "PutItem", "TransactWriteItems"]

  # Rules of this module, with the bus that their metrics are of; the default bus is none of their dimensions.
  watched_rules = merge(
    {
      alerts  = { RuleName = aws_cloudwatch_event_rule.alerts.name, EventBusName = aws_cloudwatch_event_bus.this.name }
      foreign = { RuleName = aws_cloudwatch_event_rule.foreign.name, EventBusName = aws_cloudwatch_event_bus.this.name }
      alarms  = { RuleName = aws_cloudwatch_event_rule.alarms.name }
    },
    { for name, rule in aws_cloudwatch_event_rule.jobs : "jobs-${name}" => { RuleName = rule.name } },
  )
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
  period              = each.value.seconds
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
  count = local.alarm_settings.errors.enabled ? 1 : 0

  alarm_name          = "${var.name}-errors"
  alarm_description   = "A worker logged an error. See deploy/runbook.md for each kind."
  namespace           = "Interlock"
  metric_name         = aws_cloudwatch_log_metric_filter.errors.metric_transformation[0].name
  statistic           = "Sum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["errors"].threshold
  period              = local.alarm_settings["errors"].seconds
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "dead" {
  for_each = local.alarm_settings["dlq"].enabled ? local.queues : {}

  alarm_name          = "${var.name}-${each.key}-dlq"
  alarm_description   = "Messages of the ${each.key} queue could not be processed. List them with `interlock dlq list`."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.dead[each.key].name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["dlq"].threshold
  period              = local.alarm_settings["dlq"].seconds
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "waiting" {
  for_each = local.alarm_settings["waiting"].enabled ? local.queues : {}

  alarm_name          = "${var.name}-${each.key}-waiting"
  alarm_description   = "Messages of the ${each.key} queue have waited for more than fifteen minutes."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.this[each.key].name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["waiting"].threshold
  period              = local.alarm_settings["waiting"].seconds
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

# --- the services below -----------------------------------------------------------------------------------------------

resource "aws_cloudwatch_metric_alarm" "throttled" {
  for_each = local.alarm_settings["throttled"].enabled ? local.table_names : {}

  alarm_name          = "${var.name}-${each.key}-throttled"
  alarm_description   = "DynamoDB throttles requests to the table ${each.key}. See deploy/runbook.md."
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["throttled"].threshold
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "throttled"
    expression  = "SUM(METRICS())"
    label       = "throttled reads and writes"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = { reads = "ReadThrottleEvents", writes = "WriteThrottleEvents" }

    content {
      id = metric_query.key

      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = metric_query.value
        dimensions  = { TableName = each.value }
        stat        = "Sum"
        period      = local.alarm_settings["throttled"].seconds
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "system_errors" {
  for_each = local.alarm_settings["system-errors"].enabled ? local.table_names : {}

  alarm_name          = "${var.name}-${each.key}-system-errors"
  alarm_description   = "DynamoDB fails requests to the table ${each.key} with errors of its own. See deploy/runbook.md."
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["system-errors"].threshold
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "failed"
    expression  = "SUM(METRICS())"
    label       = "system errors"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = toset(local.store_operations)

    content {
      id = lower(metric_query.value)

      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = "SystemErrors"
        dimensions  = { TableName = each.value, Operation = metric_query.value }
        stat        = "Sum"
        period      = local.alarm_settings["system-errors"].seconds
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "failed_invocations" {
  for_each = local.alarm_settings["failed-invocations"].enabled ? local.watched_rules : {}

  alarm_name          = "${var.name}-${each.key}-failed-invocations"
  alarm_description   = "EventBridge cannot put events of the rule ${each.key} into its queue. See deploy/runbook.md."
  namespace           = "AWS/Events"
  metric_name         = "FailedInvocations"
  dimensions          = each.value
  statistic           = "Sum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["failed-invocations"].threshold
  period              = local.alarm_settings["failed-invocations"].seconds
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

# Container Insights counts both. The cluster made here has it; one of yours may not, and then this alarm stays silent.
resource "aws_cloudwatch_metric_alarm" "tasks_missing" {
  for_each = local.alarm_settings["tasks-missing"].enabled ? toset(concat(keys(var.services), local.has_web ? ["web"] : [])) : []

  alarm_name          = "${var.name}-${each.key}-tasks-missing"
  alarm_description   = "Fewer tasks of the service ${each.key} run than are wanted. See deploy/runbook.md."
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["tasks-missing"].threshold
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "missing"
    expression  = "desired - running"
    label       = "tasks missing"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = { desired = "DesiredTaskCount", running = "RunningTaskCount" }

    content {
      id = metric_query.key

      metric {
        namespace   = "ECS/ContainerInsights"
        metric_name = metric_query.value
        dimensions  = { ClusterName = local.cluster_name, ServiceName = "${var.name}-${each.key}" }
        # The most that ran in all of that time: a deployment that replaces tasks is no alarm.
        stat   = "Maximum"
        period = local.alarm_settings["tasks-missing"].seconds
      }
    }
  }
}

# --- the console ------------------------------------------------------------------------------------------------------

resource "aws_cloudwatch_metric_alarm" "web" {
  for_each = { for key, alarm in local.web_alarms : key => alarm if local.has_web && contains(keys(local.alarms_on), key) }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.text}. See deploy/runbook.md."
  namespace           = "AWS/ApplicationELB"
  metric_name         = each.value.metric
  dimensions          = { LoadBalancer = local.web_load_balancer, TargetGroup = aws_lb_target_group.web[0].arn_suffix }
  statistic           = each.value.statistic == "p95" ? null : each.value.statistic
  extended_statistic  = each.value.statistic == "p95" ? "p95" : null
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings[each.key].threshold
  period              = local.alarm_settings[each.key].seconds
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "web_loop" {
  for_each = toset(local.has_web && local.alarm_settings["loop-lag"].enabled ? ["web-loop-lag"] : [])

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${local.metric_alarms["loop-lag"].text}. See deploy/runbook.md."
  namespace           = "Interlock"
  metric_name         = "LoopLagSeconds"
  dimensions          = { Service = "${var.name}-web" }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = local.alarm_settings["loop-lag"].threshold
  period              = local.alarm_settings["loop-lag"].seconds
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}
