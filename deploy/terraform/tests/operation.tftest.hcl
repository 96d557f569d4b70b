# What operators set and read: levels of dead letters, retention, architecture, outputs. `make deploy-check` runs it.

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

run "dead_letters_alarm_by_level" {
  command = plan

  assert {
    condition     = alltrue([for alarm in values(aws_cloudwatch_metric_alarm.dead) : alarm.metric_name == "ApproximateNumberOfMessagesVisible" && alarm.statistic == "Maximum" && alarm.threshold == 1]) && toset(keys(aws_cloudwatch_metric_alarm.dead)) == toset(["alerts", "events", "sensors"])
    error_message = "an alarm lasts as long as a message is in a dead-letter queue"
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.service["worker-dead-letters"].metric_name == "DeadLettersHeld" && aws_cloudwatch_metric_alarm.service["worker-dead-letters"].statistic == "Maximum" && aws_cloudwatch_metric_alarm.service["worker-dead-letters"].threshold == 1
    error_message = "and as long as the store holds a dead letter"
  }
}

run "logs_are_kept_for_as_long_as_is_said" {
  command = plan

  variables {
    log_retention_days = 30
  }

  assert {
    condition     = aws_cloudwatch_log_group.this.retention_in_days == 30
    error_message = "log_retention_days is the retention of the log group"
  }
}

run "a_retention_that_cloudwatch_lacks_is_refused" {
  command         = plan
  expect_failures = [var.log_retention_days]

  variables {
    log_retention_days = 31
  }
}

run "an_image_for_x86_runs_on_x86" {
  command = plan

  variables {
    cpu_architecture = "X86_64"
  }

  assert {
    condition     = aws_ecs_task_definition.this["worker"].runtime_platform[0].cpu_architecture == "X86_64"
    error_message = "cpu_architecture is that of the tasks"
  }
}

run "an_image_without_a_version_is_refused" {
  command         = plan
  expect_failures = [var.image]

  variables {
    image = "registry.example.com/interlock:latest"
  }
}

run "every_service_below_has_its_alarms_switch" {
  command = plan

  variables {
    alarms = { throttled = { enabled = false }, system-errors = { enabled = false }, failed-invocations = { enabled = false }, tasks-missing = { enabled = false }, data-loss = { enabled = false } }
  }

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.throttled) + length(aws_cloudwatch_metric_alarm.system_errors) + length(aws_cloudwatch_metric_alarm.failed_invocations) + length(aws_cloudwatch_metric_alarm.tasks_missing) == 0
    error_message = "each of these alarms can be switched off"
  }

  assert {
    condition     = !contains(keys(aws_cloudwatch_metric_alarm.service), "worker-data-loss")
    error_message = "that of lost changes, too"
  }
}

run "the_outputs_name_what_was_made" {
  command = plan

  assert {
    condition     = toset(keys(output.streams)) == toset(["control", "joblog", "events"]) && toset(keys(output.queues)) == toset(["alerts", "events", "sensors"])
    error_message = "streams and queues are named by what they are of"
  }

  assert {
    condition     = toset(keys(output.queues["alerts"])) == toset(["url", "arn", "dead_url", "dead_arn"])
    error_message = "each queue has its dead-letter queue"
  }

  assert {
    condition     = output.services["worker"].name == "test-interlock-worker" && contains(keys(output.services["worker"]), "task_role_arn")
    error_message = "each service has its role"
  }

  assert {
    condition     = output.dashboard == "test-interlock" && output.log_group == "/test-interlock/worker"
    error_message = "dashboard and log group have the name of the installation"
  }
}

run "rules_for_the_ends_of_jobs_are_watched" {
  command = plan

  variables {
    glue_job_arns = ["arn:aws:glue:eu-central-1:123456789012:job/load"]
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.failed_invocations["jobs-glue"].dimensions["RuleName"] == "test-interlock-jobs-glue"
    error_message = "an event about a job that does not reach its queue raises an alarm"
  }
}
