# The worker, as one or several ECS services on Fargate.

resource "aws_cloudwatch_log_group" "this" {
  name              = "/${var.name}/worker"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn == "" ? null : var.kms_key_arn
  tags              = var.tags
}

resource "aws_ecs_cluster" "this" {
  count = var.cluster_arn == "" ? 1 : 0

  name = var.name
  tags = var.tags

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_ecs_cluster_capacity_providers" "this" {
  count = var.cluster_arn == "" ? 1 : 0

  cluster_name       = aws_ecs_cluster.this[0].name
  capacity_providers = ["FARGATE", "FARGATE_SPOT"]
}

locals {
  # The first task is never on Spot: if AWS takes all others back, one goes on.
  spot_strategy = [
    { provider = "FARGATE", base = 1, weight = 0 },
    { provider = "FARGATE_SPOT", base = 0, weight = 1 },
  ]
}

locals {
  cluster_arn  = var.cluster_arn == "" ? aws_ecs_cluster.this[0].arn : var.cluster_arn
  cluster_name = element(split("/", local.cluster_arn), 1)
  health_port  = 8080

  store = "dynamodb://?control=${local.table_names.control}&joblog=${local.table_names.joblog}&rerun=${local.table_names.rerun}&events=${local.table_names.events}"

  environments = {
    for name, service in var.services : name => merge(
      {
        INTERLOCK_STORE   = local.store
        INTERLOCK_ROLES   = join(",", sort(tolist(service.duties)))
        INTERLOCK_DUTIES  = join(",", sort(tolist(service.duties))) # for an image from before INTERLOCK_ROLES
        INTERLOCK_SERVICE = "${var.name}-${name}"
        INTERLOCK_HEALTH  = "0.0.0.0:${local.health_port}"
        INTERLOCK_METRICS = "emf"
        INTERLOCK_BUS     = aws_cloudwatch_event_bus.this.name

        # For every service: the relay must know that alerts come back, and replays send messages back to their queues.
        INTERLOCK_ALERTS_QUEUE = aws_sqs_queue.this["alerts"].url
        INTERLOCK_EVENTS_QUEUE = aws_sqs_queue.this["events"].url
      },
      length(local.job_events) == 0 ? {} : {
        INTERLOCK_JOB_EVENTS = join(",", sort([for each in local.job_events : each.setting]))
      },
      contains(service.duties, "alerts") ? {
        INTERLOCK_SLACK_TOKEN   = var.slack_secret_arn == "" ? "" : "secretsmanager://${var.slack_secret_arn}"
        INTERLOCK_SLACK_CHANNEL = var.slack_channel
        INTERLOCK_ALERTS        = var.alert_rules
      } : {},
      contains(service.duties, "alerts") ? {
        for name, arn in {
          INTERLOCK_WEBHOOK_URL    = var.alert_secret_arns.webhook_url
          INTERLOCK_WEBHOOK_SECRET = var.alert_secret_arns.webhook_secret
          INTERLOCK_PAGERDUTY_KEY  = var.alert_secret_arns.pagerduty_key
          INTERLOCK_TEAMS_URL      = var.alert_secret_arns.teams_url
        } : name => "secretsmanager://${arn}" if arn != ""
      } : {},
      var.inbox_rules == "" ? {} : { INTERLOCK_SENSORS_QUEUE = aws_sqs_queue.this["sensors"].url },
      contains(service.duties, "sensors") && var.inbox_rules != "" ? { INTERLOCK_INBOX = var.inbox_rules } : {},
      contains(service.duties, "scheduler") && var.heartbeat_url != "" ? { INTERLOCK_HEARTBEAT_URL = var.heartbeat_url } : {},
      contains(service.duties, "scheduler") && var.archive != "" ? { INTERLOCK_ARCHIVE = var.archive } : {},
      # Alerts and events have links to pages of the console, and jobs an address to report their end to.
      var.web == null ? {} : { INTERLOCK_PUBLIC_URL = var.web.public_url },
      var.environment,
    )
  }
}

resource "aws_ecs_task_definition" "this" {
  for_each = var.services

  family                   = "${var.name}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = each.value.cpu
  memory                   = each.value.memory
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task[each.key].arn
  tags                     = var.tags

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  # What would only be noticed when a task starts, and ends, again and again.
  lifecycle {
    precondition {
      condition     = length(setsubtract(each.value.duties, ["sensors"])) > 0 || var.inbox_rules != ""
      error_message = "the service ${each.key} has only the role sensors, so inbox_rules must define which messages become sensors."
    }

    precondition {
      condition     = var.slack_secret_arn == "" || var.slack_channel != "" || var.alert_rules != ""
      error_message = "slack_secret_arn is given, so slack_channel or alert_rules must say where alerts go."
    }
  }

  # Command jobs and their logs; the image owns the path already, because the mount comes as root's.
  volume {
    name = "jobs"
  }

  container_definitions = jsonencode([{
    name                   = "worker"
    image                  = var.image
    essential              = true
    user                   = "10001:10001"
    readonlyRootFilesystem = !var.execute_command
    privileged             = false
    stopTimeout            = 30 # the worker takes 25 s at most
    linuxParameters        = { initProcessEnabled = true, capabilities = { drop = ["ALL"] } }
    environment            = [for name, value in local.environments[each.key] : { name = name, value = value } if value != ""]
    secrets                = [for name, arn in var.secrets : { name = name, valueFrom = arn }]
    mountPoints            = [{ sourceVolume = "jobs", containerPath = "/var/lib/interlock", readOnly = false }]

    healthCheck = {
      command     = ["CMD", "python", "-m", "worker.web.probe"]
      interval    = 15
      timeout     = 5
      retries     = 3
      startPeriod = 60
    }

    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.this.name
        awslogs-region        = data.aws_region.this.name
        awslogs-stream-prefix = each.key
        # Said, because the default differs between accounts: a log that cannot be written must not hold up the
        # worker, and metrics are lines too, so the buffer is large enough for minutes.
        mode            = "non-blocking"
        max-buffer-size = "25m"
      }
    }
  }])
}

locals {
  scaled_services = { for name, service in var.services : name => service if service.max_count > service.desired_count }
  fixed_services  = { for name, service in var.services : name => service if service.max_count <= service.desired_count }
  services        = merge(aws_ecs_service.this, aws_ecs_service.fixed)
}

# Of these, autoscaling sets the number of tasks.
resource "aws_ecs_service" "this" {
  for_each = local.scaled_services

  name                               = "${var.name}-${each.key}"
  cluster                            = local.cluster_arn
  task_definition                    = aws_ecs_task_definition.this[each.key].arn
  desired_count                      = each.value.desired_count
  launch_type                        = each.value.spot ? null : "FARGATE"
  enable_execute_command             = var.execute_command
  platform_version                   = "LATEST"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  enable_ecs_managed_tags            = true
  propagate_tags                     = "SERVICE"
  tags                               = var.tags

  dynamic "capacity_provider_strategy" {
    for_each = each.value.spot ? local.spot_strategy : []

    content {
      capacity_provider = capacity_provider_strategy.value.provider
      base              = capacity_provider_strategy.value.base
      weight            = capacity_provider_strategy.value.weight
    }
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = var.security_group_ids
    assign_public_ip = var.assign_public_ip
  }

  lifecycle {
    ignore_changes = [desired_count] # autoscaling's
  }

  depends_on = [aws_iam_role_policy.task, aws_iam_role_policy.execution, aws_ecs_cluster_capacity_providers.this]
}

# Of these, nobody but this module does. (What is ignored cannot depend on a value, so these are a resource of their own.)
resource "aws_ecs_service" "fixed" {
  for_each = local.fixed_services

  name                               = "${var.name}-${each.key}"
  cluster                            = local.cluster_arn
  task_definition                    = aws_ecs_task_definition.this[each.key].arn
  desired_count                      = each.value.desired_count
  launch_type                        = each.value.spot ? null : "FARGATE"
  enable_execute_command             = var.execute_command
  platform_version                   = "LATEST"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  enable_ecs_managed_tags            = true
  propagate_tags                     = "SERVICE"
  tags                               = var.tags

  dynamic "capacity_provider_strategy" {
    for_each = each.value.spot ? local.spot_strategy : []

    content {
      capacity_provider = capacity_provider_strategy.value.provider
      base              = capacity_provider_strategy.value.base
      weight            = capacity_provider_strategy.value.weight
    }
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = var.security_group_ids
    assign_public_ip = var.assign_public_ip
  }

  depends_on = [aws_iam_role_policy.task, aws_iam_role_policy.execution, aws_ecs_cluster_capacity_providers.this]
}

# --- more tasks when they fall behind ---------------------------------------------------------------------------------

resource "aws_appautoscaling_target" "this" {
  for_each = local.scaled_services

  service_namespace  = "ecs"
  resource_id        = "service/${local.cluster_name}/${aws_ecs_service.this[each.key].name}"
  scalable_dimension = "ecs:service:DesiredCount"
  min_capacity       = each.value.desired_count
  max_capacity       = each.value.max_count
}

locals {
  # What tells that a service is behind: its readers, its relay, or else the age of what waits in its queue.
  lags = {
    for name, service in var.services : name => (
      contains(service.duties, "engine") ? { namespace = "Interlock", metric = "ConsumerLagSeconds", dimension = "Service", of = "${var.name}-${name}" } :
      contains(service.duties, "relay") ? { namespace = "Interlock", metric = "RelayLagSeconds", dimension = "Service", of = "${var.name}-${name}" } :
      { namespace = "AWS/SQS", metric = "ApproximateAgeOfOldestMessage", dimension = "QueueName", of = "${var.name}-${sort(tolist(service.duties))[0]}" }
    )
  }
}

resource "aws_appautoscaling_policy" "lag" {
  for_each = aws_appautoscaling_target.this

  name               = "${var.name}-${each.key}-lag"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = each.value.service_namespace
  resource_id        = each.value.resource_id
  scalable_dimension = each.value.scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value       = 30 # seconds behind
    scale_out_cooldown = 120
    scale_in_cooldown  = 600

    customized_metric_specification {
      namespace   = local.lags[each.key].namespace
      metric_name = local.lags[each.key].metric
      statistic   = "Maximum"

      dimensions {
        name  = local.lags[each.key].dimension
        value = local.lags[each.key].of
      }
    }
  }
}
