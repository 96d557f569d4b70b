# What AWS says of the jobs that Interlock may start. An event only makes the worker look at once, so none is kept that
# comes too late, and nothing depends on one.

locals {
  # AWS publishes these on the default bus, and on no other. `names` picks the jobs, as long as the pattern is not too long.
  announced = {
    glue = {
      arns    = var.glue_job_arns
      source  = "aws.glue"
      type    = "Glue Job State Change"
      states  = { state = [{ "anything-but" = ["STARTING", "RUNNING", "STOPPING", "WAITING"] }] }
      names   = "jobName"
      is_arn  = false
      setting = "glue"
    }
    emr = {
      arns    = var.emr_cluster_arns
      source  = "aws.emr"
      type    = "EMR Step Status Change"
      states  = { state = [{ "anything-but" = ["PENDING", "RUNNING", "CANCEL_PENDING"] }] }
      names   = "clusterId"
      is_arn  = false
      setting = "emr"
    }
    emr-serverless = {
      arns    = var.emr_serverless_application_arns
      source  = "aws.emr-serverless"
      type    = "EMR Serverless Job Run State Change"
      states  = { state = [{ "anything-but" = ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING"] }] }
      names   = "applicationId"
      is_arn  = false
      setting = "emr-serverless"
    }
    states = {
      arns    = var.state_machine_arns
      source  = "aws.states"
      type    = "Step Functions Execution Status Change"
      states  = { status = [{ "anything-but" = ["RUNNING", "PENDING_REDRIVE"] }] }
      names   = "stateMachineArn"
      is_arn  = true
      setting = "step-function"
    }
  }

  job_events = { for name, each in local.announced : name => each if var.job_events && length(each.arns) > 0 }

  # A pattern may have 2,048 characters. Of more jobs than that, the events of all jobs of the account arrive.
  job_names = {
    for name, each in local.job_events : name => [
      # Of a state machine without its version or alias, as the event has it.
      for arn in each.arns : {
        wildcard = each.is_arn ? try(join(":", slice(split(":", arn), 0, 7)), arn) : reverse(split("/", arn))[0]
      }
    ]
  }
  job_filters = {
    for name, each in local.job_events : name =>
    length(jsonencode(local.job_names[name])) <= 1600 ? { (each.names) = local.job_names[name] } : {}
  }
}

resource "aws_cloudwatch_event_rule" "jobs" {
  for_each = local.job_events

  name        = "${var.name}-jobs-${each.key}"
  description = "Ends of ${each.value.setting} jobs, so that Interlock looks at once"
  event_pattern = jsonencode({
    source        = [each.value.source]
    "detail-type" = [each.value.type]
    detail        = merge(each.value.states, local.job_filters[each.key])
  })
  tags = var.tags
}

resource "aws_cloudwatch_event_target" "jobs" {
  for_each = local.job_events

  rule      = aws_cloudwatch_event_rule.jobs[each.key].name
  target_id = "jobs"
  arn       = aws_sqs_queue.this["events"].arn

  # After this the job is polled anyway.
  retry_policy {
    maximum_event_age_in_seconds = 900
    maximum_retry_attempts       = 185
  }
}
