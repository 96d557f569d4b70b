# What the module plans, without AWS: `terraform test` in deploy/terraform. `make deploy-check` runs it.

mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

variables {
  name               = "test-interlock"
  image              = "registry.example.com/interlock:0.1.0"
  subnet_ids         = ["subnet-11111111"]
  security_group_ids = ["sg-11111111"]
}

run "the_defaults" {
  command = plan

  assert {
    condition     = aws_ecs_service.this["worker"].desired_count == 2 && length(aws_ecs_service.fixed) == 0
    error_message = "by default, autoscaling sets the number of tasks"
  }

  assert {
    condition     = aws_ecs_service.this["worker"].launch_type == "FARGATE" && !aws_ecs_service.this["worker"].enable_execute_command
    error_message = "by default, tasks are ordinary ones, and nobody gets into them"
  }

  assert {
    condition     = aws_ecs_task_definition.this["worker"].runtime_platform[0].cpu_architecture == "ARM64"
    error_message = "the documented build is for ARM64"
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.service), "worker-runs-failed")
    error_message = "each failed run is an alert already"
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.service["worker-data-loss"].metric_name == "DataLossSuspected"
    error_message = "lost changes raise an alarm"
  }

  assert {
    condition     = toset(keys(aws_cloudwatch_metric_alarm.throttled)) == toset(["control", "joblog", "rerun", "events"]) && toset(keys(aws_cloudwatch_metric_alarm.system_errors)) == toset(["control", "joblog", "rerun", "events"])
    error_message = "throttles and errors of each table raise an alarm"
  }

  assert {
    condition     = alltrue([for alarm in values(aws_cloudwatch_metric_alarm.system_errors) : length(alarm.metric_query) <= 11])
    error_message = "an alarm takes ten metrics at most, and one expression"
  }

  assert {
    condition     = join(",", keys(aws_cloudwatch_metric_alarm.failed_invocations["alarms"].dimensions)) == "RuleName" && aws_cloudwatch_metric_alarm.failed_invocations["alerts"].dimensions["EventBusName"] == "test-interlock-events"
    error_message = "metrics of rules name their bus, unless it is the default one"
  }

  assert {
    condition     = join(",", [for query in aws_cloudwatch_metric_alarm.tasks_missing["worker"].metric_query : query.expression if query.return_data == true]) == "desired - running"
    error_message = "fewer tasks than wanted raise an alarm"
  }

  assert {
    condition     = length(output.alarms) == 8 + 1 + 3 + 3 + 4 + 4 + 3 + 1
    error_message = "the output names all alarms"
  }
}

run "a_fixed_number_of_tasks_takes_effect" {
  command = plan

  variables {
    services = { worker = { desired_count = 3, max_count = 3 } }
  }

  assert {
    condition     = aws_ecs_service.fixed["worker"].desired_count == 3 && length(aws_ecs_service.this) == 0 && length(aws_appautoscaling_target.this) == 0
    error_message = "without autoscaling, the module sets the number of tasks"
  }
}

run "alarms_can_be_changed" {
  command = plan

  variables {
    alarms = {
      runs-failed   = { enabled = true, threshold = 20, minutes = 15 }
      loop-lag      = { enabled = false }
      errors        = { enabled = false }
      throttled     = { threshold = 100 }
      tasks-missing = { minutes = 30 }
      dlq           = { enabled = false }
    }
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.service["worker-runs-failed"].threshold == 20 && aws_cloudwatch_metric_alarm.service["worker-runs-failed"].period == 900
    error_message = "an alarm that is off can be switched on, with its own threshold"
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.service), "worker-loop-lag") && length(aws_cloudwatch_metric_alarm.errors) == 0 && length(aws_cloudwatch_metric_alarm.dead) == 0
    error_message = "alarms can be switched off"
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.throttled["control"].threshold == 100 && aws_cloudwatch_metric_alarm.service["worker-relay-lag"].threshold == 300
    error_message = "a change of one alarm changes no other"
  }
}

run "an_unknown_alarm_is_refused" {
  command         = plan
  expect_failures = [var.alarms]

  variables {
    alarms = { runs-faild = { enabled = true } }
  }
}

run "both_names_of_the_roles_agree" {
  command = plan

  variables {
    environment = { INTERLOCK_HTTP_ALLOW = "example.com" }
    services    = { engine = { duties = ["engine", "relay", "scheduler"] }, rest = { duties = ["events", "alerts", "sensors"] } }
  }

  assert {
    condition     = { for name, each in local.environments : name => each.INTERLOCK_ROLES } == { engine = "engine,relay,scheduler", rest = "alerts,events,sensors" }
    error_message = "each service has the roles that it was given"
  }

  assert {
    condition     = alltrue([for each in values(local.environments) : each.INTERLOCK_ROLES == each.INTERLOCK_DUTIES])
    error_message = "a worker starts only if both names of its roles agree"
  }
}

run "roles_are_not_overridden" {
  command         = plan
  expect_failures = [var.environment]

  variables {
    environment = { INTERLOCK_ROLES = "engine" }
  }
}

run "roles_are_not_overridden_by_their_earlier_name" {
  command         = plan
  expect_failures = [var.environment]

  variables {
    environment = { INTERLOCK_DUTIES = "engine" }
  }
}

run "a_size_that_fargate_lacks_is_refused" {
  command         = plan
  expect_failures = [var.services]

  variables {
    services = { worker = { cpu = 512, memory = 1536 } }
  }
}

run "a_large_size_that_fargate_has_is_planned" {
  command = plan

  variables {
    services = { worker = { cpu = 4096, memory = 30720 } }
  }

  assert {
    condition     = aws_ecs_task_definition.this["worker"].memory == "30720"
    error_message = "4096 with 30720 is a size of Fargate"
  }
}

run "spot_keeps_one_ordinary_task" {
  command = plan

  variables {
    services = { worker = { spot = true } }
  }

  assert {
    condition = toset([for each in aws_ecs_service.this["worker"].capacity_provider_strategy : "${each.capacity_provider} ${each.base} ${each.weight}"]) == toset([
      "FARGATE 1 0", "FARGATE_SPOT 0 1",
    ])
    error_message = "the first task is ordinary, and all others are on Spot"
  }
}

run "execute_command_is_an_option" {
  command = plan

  variables {
    execute_command = true
  }

  assert {
    condition     = aws_ecs_service.this["worker"].enable_execute_command && length(aws_iam_role_policy.execute_command) == 1
    error_message = "the agent needs the permission"
  }
}

run "glue_logs_are_of_the_groups_that_are_named" {
  command = plan

  variables {
    glue_job_arns   = ["arn:aws:glue:eu-central-1:123456789012:job/load"]
    glue_log_groups = ["/aws-glue/*", "/team/glue/*"]
  }

  assert {
    condition     = contains(local.job_arns["glue/logs"], "arn:aws:logs:eu-central-1:123456789012:log-group:/team/glue/*")
    error_message = "the role covers the groups of glue_log_groups"
  }
}

run "events_announce_the_ends_of_jobs" {
  command = plan

  variables {
    glue_job_arns      = ["arn:aws:glue:eu-central-1:123456789012:job/orders", "arn:aws:glue:eu-central-1:123456789012:job/sales-*"]
    state_machine_arns = ["arn:aws:states:eu-central-1:123456789012:stateMachine:orders:live"]
  }

  assert {
    condition     = toset(keys(aws_cloudwatch_event_rule.jobs)) == toset(["glue", "states"]) && length(aws_cloudwatch_event_target.jobs) == 2
    error_message = "there is a rule for each kind of job that may be started"
  }

  assert {
    condition     = jsondecode(aws_cloudwatch_event_rule.jobs["glue"].event_pattern).detail.jobName == [{ wildcard = "orders" }, { wildcard = "sales-*" }]
    error_message = "a rule matches the jobs that may be started"
  }

  assert {
    condition     = jsondecode(aws_cloudwatch_event_rule.jobs["states"].event_pattern).detail.stateMachineArn[0].wildcard == "arn:aws:states:eu-central-1:123456789012:stateMachine:orders"
    error_message = "events name a state machine without its alias"
  }

  assert {
    condition     = local.environments["worker"].INTERLOCK_JOB_EVENTS == "glue,step-function"
    error_message = "the worker knows which ends are announced"
  }
}

run "no_events_about_jobs" {
  command = plan

  variables {
    job_events    = false
    glue_job_arns = ["arn:aws:glue:eu-central-1:123456789012:job/orders"]
  }

  assert {
    condition     = length(aws_cloudwatch_event_rule.jobs) == 0 && !contains(keys(local.environments["worker"]), "INTERLOCK_JOB_EVENTS")
    error_message = "without events, jobs are polled at their own interval"
  }
}

run "too_many_jobs_for_a_pattern" {
  command = plan

  variables {
    glue_job_arns = [for number in range(200) : "arn:aws:glue:eu-central-1:123456789012:job/orders-${number}"]
  }

  assert {
    condition     = length(aws_cloudwatch_event_rule.jobs["glue"].event_pattern) <= 2048 && !strcontains(aws_cloudwatch_event_rule.jobs["glue"].event_pattern, "jobName")
    error_message = "a pattern that would be too long matches the jobs of the account"
  }
}
