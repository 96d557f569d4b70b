output "store" {
  description = "The store's URL, for `interlock --store` or INTERLOCK_STORE; add &region=... outside the default region."
  value       = local.store
}

output "tables" {
  description = "Names and ARNs of the four tables."
  value       = { for table in keys(local.tables) : table => { name = local.table_names[table], arn = local.table_arns[table] } }
}

output "bus" {
  description = "The bus that events are published to."
  value       = { name = aws_cloudwatch_event_bus.this.name, arn = aws_cloudwatch_event_bus.this.arn }
}

output "queues" {
  description = "The queues and their dead-letter queues."
  value = {
    for queue in keys(local.queues) : queue => {
      url      = aws_sqs_queue.this[queue].url
      arn      = aws_sqs_queue.this[queue].arn
      dead_url = aws_sqs_queue.dead[queue].url
      dead_arn = aws_sqs_queue.dead[queue].arn
    }
  }
}

output "cluster_arn" {
  value       = local.cluster_arn
  description = "The ECS cluster."
}

output "services" {
  description = "The ECS services and the roles of their tasks."
  value       = { for name in keys(var.services) : name => { name = local.services[name].name, task_role_arn = aws_iam_role.task[name].arn } }
}

output "streams" {
  description = "ARNs of the streams that workers read, by table."
  value       = local.stream_arns
}

output "execution_role_arn" {
  description = "The role with which ECS starts tasks: it pulls the image and reads the secrets of `secrets`."
  value       = aws_iam_role.execution.arn
}

output "dashboard" {
  description = "Name of the CloudWatch dashboard."
  value       = aws_cloudwatch_dashboard.this.dashboard_name
}

output "alarms" {
  description = "Names of all alarms."
  value = sort(concat(
    values(aws_cloudwatch_metric_alarm.service)[*].alarm_name,
    aws_cloudwatch_metric_alarm.errors[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.dead)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.waiting)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.throttled)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.system_errors)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.failed_invocations)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.tasks_missing)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.web)[*].alarm_name,
    values(aws_cloudwatch_metric_alarm.web_loop)[*].alarm_name,
  ))
}

output "log_group" {
  value       = aws_cloudwatch_log_group.this.name
  description = "Where the workers' logs are."
}

output "web" {
  description = "The console: its URL, ECS service, task role, target group and security group. Null without one."
  value = var.web == null ? null : {
    url               = var.web.public_url
    service           = aws_ecs_service.web[0].name
    task_role_arn     = aws_iam_role.web[0].arn
    target_group_arn  = aws_lb_target_group.web[0].arn
    security_group_id = aws_security_group.web[0].id
  }
}
