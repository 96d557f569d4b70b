# One task role for each service, with what its worker roles need and nothing else. A test compares this with the calls that
# the program makes.

data "aws_caller_identity" "this" {}

data "aws_region" "this" {}

data "aws_partition" "this" {}

locals {
  # What statements speak of, and where it is.
  arns = merge(
    local.table_arns,
    { for table, arn in local.table_arns : "${table}/index" => "${arn}/index/*" },
    { for table, arn in local.stream_arns : "${table}/stream" => arn },
    { for queue in keys(local.queues) : "queue/${queue}" => aws_sqs_queue.this[queue].arn },
    {
      bus            = aws_cloudwatch_event_bus.this.arn
      task           = "arn:${data.aws_partition.this.partition}:ecs:${data.aws_region.this.name}:${data.aws_caller_identity.this.account_id}:task/${local.cluster_name}/*"
      "secret/slack" = var.slack_secret_arn
      "secret/web"   = local.web_tokens_secret_arn

      "secret/webhook-url"    = var.alert_secret_arns.webhook_url
      "secret/webhook-secret" = var.alert_secret_arns.webhook_secret
      "secret/pagerduty"      = var.alert_secret_arns.pagerduty_key
      "secret/teams"          = var.alert_secret_arns.teams_url

      "archive/objects" = "arn:${data.aws_partition.this.partition}:s3:::${local.archive_bucket}/${local.archive_prefix}*"
      "archive/bucket"  = "arn:${data.aws_partition.this.partition}:s3:::${local.archive_bucket}"
    },
  )

  archive        = split("/", trimprefix(var.archive, "s3://"))
  archive_bucket = local.archive[0]
  archive_prefix = length(compact(local.archive)) > 1 ? "${join("/", compact(slice(local.archive, 1, length(local.archive))))}/" : ""

  reads  = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"]
  writes = ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem"]
  follow = ["dynamodb:DescribeStream", "dynamodb:GetShardIterator", "dynamodb:GetRecords"]
  take   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]

  # What each worker role may do, on what, and in which partitions of it (none said: in all). The tests read this as it is, and
  # hold every call of a worker with these worker roles against it: keep it plain.
  role_statements = {
    # Sessions, leases and dead letters, whatever the worker roles. Nothing of a pipeline is in these partitions.
    everyone = [
      { sid = "Membership", actions = local.reads, on = ["control"], partition = ["GROUP#*", "PING"] },
      { sid = "MembershipWrites", actions = local.writes, on = ["control"], partition = ["GROUP#*"] },
      # The expiry is for `interlock doctor`, which is run with this task role.
      { sid = "LookAtTables", actions = ["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"], on = ["control", "joblog", "rerun", "events"], partition = [] },
      # A busy task asks the agent beside it to be spared from scale-in; the agent asks ECS with the task role.
      { sid = "Protection", actions = ["ecs:UpdateTaskProtection"], on = ["task"], partition = [] },
      { sid = "DeadLetters", actions = local.reads, on = ["events"], partition = ["DEADLETTER#*", "DEADLETTERBODY#*", "DEADLETTERSOURCES"] },
      { sid = "DeadLettersWrites", actions = ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"], on = ["events"], partition = ["DEADLETTER#*", "DEADLETTERBODY#*", "DEADLETTERSOURCES"] },
    ]
    engine = [
      { sid = "Rows", actions = local.reads, on = ["control", "joblog", "rerun", "events"], partition = [] },
      { sid = "RowsWrites", actions = local.writes, on = ["control"], partition = [] },
      # Logs of what happened: nobody changes them, and rows expire by themselves.
      { sid = "Logs", actions = ["dynamodb:PutItem"], on = ["joblog", "rerun", "events"], partition = [] },
      # The history of a deleted run, if that was asked for: a worker may serve the API, too.
      { sid = "History", actions = ["dynamodb:DeleteItem"], on = ["joblog", "rerun"], partition = ["PIPELINE#*"] },
      { sid = "Indexes", actions = ["dynamodb:Query"], on = ["control/index", "events/index"], partition = [] },
      { sid = "Streams", actions = local.follow, on = ["control/stream", "joblog/stream"], partition = [] },
      # A replay of a queue's dead letter sends the message back.
      { sid = "Replays", actions = ["sqs:SendMessage"], on = ["queue/alerts", "queue/events", "queue/sensors"], partition = [] },
    ]
    # It acts through the engine beside it. The archive only grows: nothing of it is read or deleted.
    scheduler = [
      { sid = "Archive", actions = ["s3:PutObject"], on = ["archive/objects"], partition = [] },
      # For `interlock doctor`, which asks whether the bucket is there.
      { sid = "ArchiveBucket", actions = ["s3:ListBucket"], on = ["archive/bucket"], partition = [] },
    ]
    relay = [
      { sid = "Outbox", actions = local.follow, on = ["events/stream"], partition = [] },
      { sid = "CatchUp", actions = ["dynamodb:Query"], on = ["events/index"], partition = [] },
      { sid = "Publish", actions = ["events:PutEvents"], on = ["bus"], partition = [] },
    ]
    alerts = [
      { sid = "AlertsQueue", actions = local.take, on = ["queue/alerts"], partition = [] },
      # Threads of the chat, beside the events that they tell of.
      { sid = "Threads", actions = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"], on = ["events"], partition = ["PIPELINE#*"] },
      # The pace that all workers keep in a channel, and the alerts that wait for a message that tells them together.
      { sid = "AlertRates", actions = ["dynamodb:GetItem", "dynamodb:PutItem"], on = ["events"], partition = ["RATE#*"] },
      { sid = "GroupedAlerts", actions = ["dynamodb:Query", "dynamodb:PutItem", "dynamodb:DeleteItem"], on = ["events"], partition = ["GROUPEDALERTS", "GROUPEDALERTS#TARGETS"] },
      # The alerts that wait for a webhook, PagerDuty or Teams.
      { sid = "TargetAlerts", actions = ["dynamodb:Query", "dynamodb:PutItem", "dynamodb:DeleteItem"], on = ["events"], partition = ["TARGETALERTS#*"] },
      { sid = "Digests", actions = ["dynamodb:Query"], on = ["events/index"], partition = [] },
      { sid = "Owners", actions = ["dynamodb:GetItem"], on = ["control"], partition = ["PIPELINE#*"] },
      # That a probe of the way of alerts arrived: in the partition of no pipeline.
      { sid = "ProbesArrived", actions = ["dynamodb:PutItem"], on = ["control"], partition = ["PIPELINE#"] },
      { sid = "SlackToken", actions = ["secretsmanager:GetSecretValue"], on = ["secret/slack"], partition = [] },
      { sid = "TargetSecrets", actions = ["secretsmanager:GetSecretValue"], on = ["secret/webhook-url", "secret/webhook-secret", "secret/pagerduty", "secret/teams"], partition = [] },
    ]
    events = [
      { sid = "EventsQueue", actions = local.take, on = ["queue/events"], partition = [] },
      # Hints about the ends of jobs, for the worker that holds the run.
      { sid = "JobHints", actions = ["dynamodb:GetItem", "dynamodb:PutItem"], on = ["control"], partition = ["HINTS#*"] },
      { sid = "ForeignEvents", actions = ["dynamodb:GetItem", "dynamodb:PutItem"], on = ["events"], partition = ["PIPELINE#*"] },
    ]
    sensors = [
      { sid = "SensorsQueue", actions = local.take, on = ["queue/sensors"], partition = [] },
      # Sensors, and the ledger of objects. Nothing else is in reach: no session, no lease, no cascade marker.
      { sid = "Sensors", actions = ["dynamodb:GetItem", "dynamodb:PutItem"], on = ["control"], partition = ["PIPELINE#*", "INBOX#*"] },
      # Manifests are read, and rules with `archive` move objects, within the buckets that send notifications.
      { sid = "InboxObjects", actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], on = ["inbox/objects"], partition = [] },
      # Whether a run completed, and what it was started on; a failure to archive is an event.
      { sid = "CompletedRuns", actions = ["dynamodb:BatchGetItem"], on = ["control"], partition = ["PIPELINE#*"] },
      { sid = "InboxEvents", actions = ["dynamodb:PutItem"], on = ["events"], partition = ["PIPELINE#*"] },
      # The objects of a period, which are committed together; and which of them were known before.
      { sid = "Collections", actions = ["dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:DeleteItem"], on = ["control"], partition = ["COLLECTION#*"] },
      { sid = "KnownObjects", actions = ["dynamodb:BatchGetItem"], on = ["control"], partition = ["INBOX#*"] },
    ]
  }

  statements = {
    for role, statements in local.role_statements : role => [
      for statement in statements : {
        sid       = statement.sid
        actions   = statement.actions
        resources = statement.sid == "InboxObjects" ? [for arn in var.inbox_bucket_arns : "${arn}/*"] : [for name in statement.on : local.arns[name] if local.arns[name] != ""]
        partition = statement.partition
      } if(statement.sid != "InboxObjects" || (length(var.inbox_bucket_arns) > 0 && strcontains(var.inbox_rules, "collect:"))) && (statement.sid != "SlackToken" || var.slack_secret_arn != "") && (statement.sid != "TargetSecrets" || length(compact(values(var.alert_secret_arns))) > 0) && (!startswith(statement.sid, "Archive") || var.archive != "")
    ]
  }

  key_statements = var.kms_key_arn == "" ? [] : [
    { sid = "Key", actions = ["kms:Decrypt", "kms:GenerateDataKey"], resources = [var.kms_key_arn], partition = [] },
  ]

  service_statements = {
    for name, service in var.services : name => concat(
      local.statements.everyone,
      flatten([for role in sort(tolist(service.duties)) : local.statements[role]]),
      [for statement in local.job_statements : statement if contains(service.duties, "engine")],
      local.key_statements,
    )
  }
}

data "aws_iam_policy_document" "tasks_assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.this.account_id]
    }
  }
}

data "aws_iam_policy_document" "task" {
  for_each = merge(local.service_statements, local.web_statements)

  dynamic "statement" {
    for_each = each.value
    content {
      sid       = statement.value.sid
      actions   = statement.value.actions
      resources = statement.value.resources

      dynamic "condition" {
        for_each = length(statement.value.partition) > 0 ? [statement.value.partition] : []
        content {
          test     = "ForAllValues:StringLike"
          variable = "dynamodb:LeadingKeys"
          values   = condition.value
        }
      }
    }
  }
}

resource "aws_iam_role" "task" {
  for_each = var.services

  name               = "${var.name}-${each.key}-task"
  description        = "Permissions of the roles ${join(", ", sort(tolist(each.value.duties)))}"
  assume_role_policy = data.aws_iam_policy_document.tasks_assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "task" {
  for_each = var.services

  name   = "duties"
  role   = aws_iam_role.task[each.key].id
  policy = data.aws_iam_policy_document.task[each.key].json
}

# --- what ECS itself needs to start a task ----------------------------------------------------------------------------

locals {
  # The repository of the image, in whichever account and region it is; none, if the image is not in ECR.
  image_repositories = [
    for found in regexall("^([0-9]{12})\\.dkr\\.ecr\\.([a-z0-9-]+)\\.amazonaws\\.com(?:\\.cn)?/([^:@]+)", var.image) :
    "arn:${data.aws_partition.this.partition}:ecr:${found[1]}:${found[0]}:repository/${found[2]}"
  ]
}

data "aws_iam_policy_document" "execution" {
  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.this.arn}:*"]
  }

  dynamic "statement" {
    for_each = local.image_repositories
    content {
      sid     = "Image"
      actions = ["ecr:GetAuthorizationToken"]
      # This one action has no resource.
      resources = ["*"]
    }
  }

  dynamic "statement" {
    for_each = local.image_repositories
    content {
      sid       = "ImageLayers"
      actions   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      resources = [statement.value]
    }
  }

  dynamic "statement" {
    for_each = length(var.secrets) > 0 ? [values(var.secrets)] : []
    content {
      sid       = "Secrets"
      actions   = ["secretsmanager:GetSecretValue", "ssm:GetParameters"]
      resources = statement.value
    }
  }

  dynamic "statement" {
    for_each = length(var.secrets) > 0 && var.kms_key_arn != "" ? [var.kms_key_arn] : []
    content {
      sid       = "Key"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]
    }
  }
}

resource "aws_iam_role" "execution" {
  name               = "${var.name}-execution"
  description        = "Permissions that ECS needs to start a task"
  assume_role_policy = data.aws_iam_policy_document.tasks_assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "execution" {
  name   = "start-tasks"
  role   = aws_iam_role.execution.id
  policy = data.aws_iam_policy_document.execution.json
}

# --- into a running task, for finding faults --------------------------------------------------------------------------

data "aws_iam_policy_document" "execute_command" {
  statement {
    sid       = "ExecuteCommand"
    actions   = ["ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"]
    resources = ["*"] # these know no resource
  }
}

resource "aws_iam_role_policy" "execute_command" {
  for_each = var.execute_command ? var.services : {}

  name   = "execute-command"
  role   = aws_iam_role.task[each.key].id
  policy = data.aws_iam_policy_document.execute_command.json
}
