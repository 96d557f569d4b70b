# One task role for each service, with what its duties need and nothing else. A test compares this with the calls that
# the program makes.

data "aws_caller_identity" "this" {}

data "aws_region" "this" {}

data "aws_partition" "this" {}

locals {
  group = "interlock"

  # Every worker keeps its session, its leases and its dead letters; nothing of a pipeline is in these partitions.
  membership = [
    {
      sid       = "Membership"
      actions   = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem"]
      resources = [local.table_arns.control]
      partition = ["GROUP#*", "PING"]
    },
    {
      sid       = "LookAtTables"
      actions   = ["dynamodb:DescribeTable"]
      resources = values(local.table_arns)
      partition = []
    },
    {
      sid       = "DeadLetters"
      actions   = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:DeleteItem"]
      resources = [local.table_arns.events]
      partition = ["DEADLETTER#*", "DEADLETTERBODY#*", "DEADLETTERSOURCES"]
    },
  ]

  row_actions = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem"]

  queue_actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]

  stream_actions = ["dynamodb:DescribeStream", "dynamodb:GetShardIterator", "dynamodb:GetRecords"]

  duty_statements = {
    engine = concat(
      [
        { sid = "Rows", actions = local.row_actions, resources = [for table in ["control", "joblog", "rerun", "events"] : local.table_arns[table]], partition = [] },
        { sid = "Indexes", actions = ["dynamodb:Query"], resources = ["${local.table_arns.control}/index/*", "${local.table_arns.events}/index/*"], partition = [] },
        { sid = "Streams", actions = local.stream_actions, resources = [local.stream_arns.control, local.stream_arns.joblog], partition = [] },
        # A replay of a queue's dead letter sends the message back.
        { sid = "Replays", actions = ["sqs:SendMessage"], resources = [for queue in aws_sqs_queue.this : queue.arn], partition = [] },
      ],
      local.job_statements,
    )
    # It acts through the engine beside it.
    scheduler = []
    relay = [
      { sid = "Outbox", actions = local.stream_actions, resources = [local.stream_arns.events], partition = [] },
      { sid = "CatchUp", actions = ["dynamodb:Query"], resources = ["${local.table_arns.events}/index/*"], partition = [] },
      { sid = "Publish", actions = ["events:PutEvents"], resources = [aws_cloudwatch_event_bus.this.arn], partition = [] },
    ]
    alerts = concat(
      [
        { sid = "AlertsQueue", actions = local.queue_actions, resources = [aws_sqs_queue.this["alerts"].arn], partition = [] },
        { sid = "Threads", actions = ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"], resources = [local.table_arns.events], partition = [] },
      ],
      var.slack_secret_arn == "" ? [] : [
        { sid = "SlackToken", actions = ["secretsmanager:GetSecretValue"], resources = [var.slack_secret_arn], partition = [] },
      ],
    )
    events = [
      { sid = "EventsQueue", actions = local.queue_actions, resources = [aws_sqs_queue.this["events"].arn], partition = [] },
      { sid = "ForeignEvents", actions = ["dynamodb:PutItem"], resources = [local.table_arns.events], partition = [] },
    ]
    sensors = [
      { sid = "SensorsQueue", actions = local.queue_actions, resources = [aws_sqs_queue.this["sensors"].arn], partition = [] },
      # Sensors, and the ledger of objects. Nothing else is in reach: no session, no lease, no cascade marker.
      { sid = "Sensors", actions = ["dynamodb:GetItem", "dynamodb:PutItem"], resources = [local.table_arns.control], partition = ["PIPELINE#*", "INBOX#*"] },
    ]
  }

  key_statements = var.kms_key_arn == "" ? [] : [
    { sid = "Key", actions = ["kms:Decrypt", "kms:GenerateDataKey"], resources = [var.kms_key_arn], partition = [] },
  ]

  service_statements = {
    for name, service in var.services : name => concat(
      local.membership,
      flatten([for duty in sort(tolist(service.duties)) : local.duty_statements[duty]]),
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
  for_each = local.service_statements

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
  description        = "What the duties ${join(", ", sort(tolist(each.value.duties)))} need"
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

data "aws_iam_policy_document" "execution" {
  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.this.arn}:*"]
  }

  statement {
    sid     = "Image"
    actions = ["ecr:GetAuthorizationToken"]
    # This one action has no resource.
    resources = ["*"]
  }

  statement {
    sid       = "ImageLayers"
    actions   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    resources = ["arn:${data.aws_partition.this.partition}:ecr:${data.aws_region.this.name}:${data.aws_caller_identity.this.account_id}:repository/*"]
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
  description        = "What ECS needs to start a task"
  assume_role_policy = data.aws_iam_policy_document.tasks_assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "execution" {
  name   = "start-tasks"
  role   = aws_iam_role.execution.id
  policy = data.aws_iam_policy_document.execution.json
}
