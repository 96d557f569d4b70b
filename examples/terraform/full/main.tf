# Every option: roles on services of their own, a customer key, Slack, alarms to a topic, pipelines
# from files, an inbox for S3, an archive, jobs that may be started, and the console behind a load
# balancer.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = { source = "hashicorp/aws", version = ">= 5.60, < 7.0" }
  }
}

variable "endpoint" {
  description = "An emulator's address, to try this without an account. Empty: AWS."
  type        = string
  default     = ""
}

variable "image" {
  description = "The container image."
  type        = string
  default     = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/interlock:0.1.0"
}

variable "web_oidc_client_secret" {
  description = "The secret of the console's OIDC client."
  type        = string
  default     = "an-example-to-replace"
  sensitive   = true
}

variable "listener_arn" {
  description = "The HTTPS listener of the load balancer in front of the console."
  type        = string
  default     = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:listener/app/example/50dc6c495c0c9188/f2f7dc8efc522ab2"
}

locals {
  on_emulator = var.endpoint != ""
}

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = local.on_emulator ? "test" : null
  secret_key                  = local.on_emulator ? "test" : null
  skip_credentials_validation = local.on_emulator
  skip_metadata_api_check     = local.on_emulator
  skip_requesting_account_id  = local.on_emulator

  dynamic "endpoints" {
    for_each = local.on_emulator ? [var.endpoint] : []
    content {
      applicationautoscaling = endpoints.value
      cloudwatch             = endpoints.value
      dynamodb               = endpoints.value
      ec2                    = endpoints.value
      ecs                    = endpoints.value
      elbv2                  = endpoints.value
      eventbridge            = endpoints.value
      iam                    = endpoints.value
      kms                    = endpoints.value
      logs                   = endpoints.value
      secretsmanager         = endpoints.value
      sns                    = endpoints.value
      sqs                    = endpoints.value
      sts                    = endpoints.value
    }
  }
}

data "aws_caller_identity" "this" {}

# --- what the module is given -----------------------------------------------------------------------------------------

data "aws_iam_policy_document" "key" {
  # In the policy of a key, "*" is the key itself; the account must be able to manage it, or nobody can.
  #checkov:skip=CKV_AWS_109:the policy of a key names the key as "*"
  #checkov:skip=CKV_AWS_111:the policy of a key names the key as "*"
  #checkov:skip=CKV_AWS_356:the policy of a key names the key as "*"

  statement {
    sid       = "Account"
    actions   = ["kms:*"]
    resources = ["*"]

    principals {
      type        = "AWS"
      identifiers = ["arn:aws:iam::${data.aws_caller_identity.this.account_id}:root"]
    }
  }

  # Without this, rules and buckets put nothing into an encrypted queue, and say so nowhere. The bus itself looks at the
  # key before it takes it.
  statement {
    sid       = "Senders"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey"]
    resources = ["*"]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com", "s3.amazonaws.com", "sns.amazonaws.com", "cloudwatch.amazonaws.com"]
    }
  }

  statement {
    sid       = "Logs"
    actions   = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*", "kms:DescribeKey"]
    resources = ["*"]

    principals {
      type        = "Service"
      identifiers = ["logs.eu-west-1.amazonaws.com"]
    }
  }
}

resource "aws_kms_key" "this" {
  description         = "Interlock"
  enable_key_rotation = true
  policy              = data.aws_iam_policy_document.key.json
}

resource "aws_secretsmanager_secret" "slack" {
  #checkov:skip=CKV2_AWS_57:Slack's bot tokens cannot be rotated by a function; a person replaces them
  name       = "example-interlock-slack"
  kms_key_id = aws_kms_key.this.arn
}

resource "aws_secretsmanager_secret" "alert_targets" {
  #checkov:skip=CKV2_AWS_57:the services that give out these keys and addresses rotate none by a function; a person replaces them
  for_each   = toset(["webhook-url", "webhook-secret", "pagerduty", "teams"])
  name       = "example-interlock-${each.key}"
  kms_key_id = aws_kms_key.this.arn
}

# Its value is set by a person, and never part of Terraform's state.
resource "aws_secretsmanager_secret" "web_tokens" {
  #checkov:skip=CKV2_AWS_57:a person gives out the tokens of programs, and replaces them
  name       = "example-interlock-web-tokens"
  kms_key_id = aws_kms_key.this.arn
}

resource "aws_sns_topic" "alarms" {
  name              = "example-interlock-alarms"
  kms_master_key_id = aws_kms_key.this.arn
}

# --- the module -------------------------------------------------------------------------------------------------------

module "interlock" {
  source = "../../../deploy/terraform"

  name               = "example-interlock"
  image              = var.image
  subnet_ids         = ["subnet-11111111", "subnet-22222222"]
  security_group_ids = ["sg-11111111"]

  # The emulator has no autoscaling: there, no service may grow.
  services = {
    engine = { duties = ["engine", "scheduler"], desired_count = 3, max_count = local.on_emulator ? 3 : 10, cpu = 1024, memory = 2048 }
    events = { duties = ["relay", "events", "sensors"], desired_count = 2, max_count = local.on_emulator ? 2 : 6 }
    alerts = { duties = ["alerts"], desired_count = 1, max_count = 1, cpu = 256, memory = 512 }
  }

  pipelines_path = "${path.module}/pipelines"
  calendars_path = "${path.module}/calendars"

  kms_key_arn      = aws_kms_key.this.arn
  slack_secret_arn = aws_secretsmanager_secret.slack.arn
  slack_channel    = "C0123456789"
  alert_secret_arns = {
    webhook_url    = aws_secretsmanager_secret.alert_targets["webhook-url"].arn
    webhook_secret = aws_secretsmanager_secret.alert_targets["webhook-secret"].arn
    pagerduty_key  = aws_secretsmanager_secret.alert_targets["pagerduty"].arn
    teams_url      = aws_secretsmanager_secret.alert_targets["teams"].arn
  }
  alarm_topic_arn = aws_sns_topic.alarms.arn
  heartbeat_url   = "https://example.com/heartbeat/interlock"

  inbox_bucket_arns = ["arn:aws:s3:::example-landing"]
  inbox_rules       = file("${path.module}/inbox.yaml")

  archive = "s3://example-archive/interlock"

  glue_job_arns        = ["arn:aws:glue:eu-west-1:111122223333:job/orders"]
  state_machine_arns   = ["arn:aws:states:eu-west-1:111122223333:stateMachine:orders"]
  lambda_function_arns = ["arn:aws:lambda:eu-west-1:111122223333:function:orders"]
  job_secret_arns      = ["arn:aws:secretsmanager:eu-west-1:111122223333:secret:example-databricks-AbCdEf"]

  emr_cluster_arns                = ["arn:aws:elasticmapreduce:eu-west-1:111122223333:cluster/j-1EXAMPLE"]
  emr_serverless_application_arns = ["arn:aws:emr-serverless:eu-west-1:111122223333:/applications/00example"]
  emr_serverless_role_arns        = ["arn:aws:iam::111122223333:role/example-emr-job"]

  # What probes may ask about.
  probe_bucket_arns = ["arn:aws:s3:::example-landing"]
  probe_catalogue_arns = [
    "arn:aws:glue:eu-west-1:111122223333:catalog",
    "arn:aws:glue:eu-west-1:111122223333:database/sales",
    "arn:aws:glue:eu-west-1:111122223333:table/sales/*",
  ]
  probe_table_arns     = ["arn:aws:dynamodb:eu-west-1:111122223333:table/example-exports"]
  probe_workgroup_arns = ["arn:aws:athena:eu-west-1:111122223333:workgroup/probes"]
  probe_result_arns    = ["arn:aws:s3:::example-athena-results/probes"]

  web = {
    public_url                      = "https://interlock.example.com"
    vpc_id                          = "vpc-11111111"
    listener_arn                    = var.listener_arn
    load_balancer_security_group_id = "sg-22222222"
    operators                       = ["user:ann@example.com", "group:data-oncall"]
    tokens_secret_arn               = aws_secretsmanager_secret.web_tokens.arn

    oidc = {
      issuer                 = "https://login.example.com"
      authorization_endpoint = "https://login.example.com/authorize"
      token_endpoint         = "https://login.example.com/token"
      user_info_endpoint     = "https://login.example.com/userinfo"
      client_id              = "interlock-console"
    }
  }
  web_oidc_client_secret = var.web_oidc_client_secret

  deletion_protection = !local.on_emulator
  allow_plain_http    = local.on_emulator

  tags = { project = "interlock" }
}

output "store" {
  value = module.interlock.store
}

output "queues" {
  value = module.interlock.queues
}

output "bus" {
  value = module.interlock.bus
}

output "tables" {
  value = module.interlock.tables
}

output "web" {
  value = module.interlock.web
}
