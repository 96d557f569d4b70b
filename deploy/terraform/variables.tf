# --- what must be said ------------------------------------------------------------------------------------------------

variable "name" {
  description = "Begins the name of everything made here, as in prod-interlock."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,30}[a-z0-9]$", var.name))
    error_message = "name must have 3 to 32 characters: small letters, digits and hyphens, beginning with a letter."
  }
}

variable "image" {
  description = "The container image, best by digest: REGISTRY/interlock@sha256:..."
  type        = string

  validation {
    condition     = length(var.image) > 0 && !endswith(var.image, ":latest")
    error_message = "image must name a fixed version: a tag other than latest, or a digest."
  }
}

variable "subnet_ids" {
  description = "Private subnets for the tasks. They need a way to the AWS APIs: a NAT gateway, or the endpoints listed in the README."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "subnet_ids must name at least one subnet; two in different zones survive the loss of a zone."
  }
}

variable "security_group_ids" {
  description = "Security groups of the tasks. They need no way in, and HTTPS out."
  type        = list(string)

  validation {
    condition     = length(var.security_group_ids) > 0
    error_message = "security_group_ids must name at least one group."
  }
}

# --- pipelines --------------------------------------------------------------------------------------------------------

variable "pipelines_path" {
  description = "Directory of pipeline files (*.yaml, *.yml); each becomes the CONFIG row of its name. Empty: pipelines are pushed with `interlock pipelines push`."
  type        = string
  default     = ""
}

variable "calendars_path" {
  description = "Directory of calendar files. A calendar goes along with each pipeline that names it."
  type        = string
  default     = ""
}

# --- the service ------------------------------------------------------------------------------------------------------

variable "services" {
  description = <<-TEXT
    The ECS services, by name; by default one service with all roles (`duties`). Splitting the roles splits the task roles,
    too: a service that only sends alerts cannot start jobs. `scheduler` requires `engine`, because the worker that creates
    a run also starts its job. A service with max_count above desired_count scales between the two, and desired_count is
    the minimum. Otherwise exactly desired_count tasks run. A change from one to the other replaces the service. With `spot`,
    the first task is an ordinary one and all others are on Fargate Spot, which AWS may end with two minutes' notice; others
    take over what they held. A change of `spot` replaces the service, too.
  TEXT
  type = map(object({
    duties        = optional(set(string), ["engine", "scheduler", "relay", "alerts", "events", "sensors"])
    desired_count = optional(number, 2)
    max_count     = optional(number, 6)
    cpu           = optional(number, 512)
    memory        = optional(number, 1024)
    spot          = optional(bool, false)
  }))
  default = { worker = {} }

  # https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html
  validation {
    condition = alltrue([for service in values(var.services) : contains(lookup({
      "256"   = [512, 1024, 2048]
      "512"   = range(1024, 4097, 1024)
      "1024"  = range(2048, 8193, 1024)
      "2048"  = range(4096, 16385, 1024)
      "4096"  = range(8192, 30721, 1024)
      "8192"  = range(16384, 61441, 4096)
      "16384" = range(32768, 122881, 8192)
    }, tostring(service.cpu), []), service.memory)])
    error_message = "Fargate has no task of that size: cpu is 256, 512, 1024, 2048, 4096, 8192 or 16384, and memory about 2 to 8 times as much; https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html has the pairs."
  }

  validation {
    condition     = length(var.services) > 0 && alltrue([for name in keys(var.services) : can(regex("^[a-z][a-z0-9-]{0,20}$", name))])
    error_message = "services must name at least one service; a name has small letters, digits and hyphens."
  }

  validation {
    condition = alltrue(flatten([
      for service in values(var.services) : [
        for role in service.duties : contains(["engine", "scheduler", "relay", "alerts", "events", "sensors"], role)
      ]
    ]))
    error_message = "a role is one of engine, scheduler, relay, alerts, events, sensors."
  }

  validation {
    condition     = alltrue([for service in values(var.services) : !contains(service.duties, "scheduler") || contains(service.duties, "engine")])
    error_message = "a service with the role scheduler needs the role engine, too."
  }

  validation {
    condition = length(setsubtract(
      ["engine", "scheduler", "relay", "alerts", "events", "sensors"],
      flatten([for service in values(var.services) : tolist(service.duties)])
    )) == 0
    error_message = "every role needs a service: engine, scheduler, relay, alerts, events, sensors."
  }

  validation {
    condition     = alltrue([for service in values(var.services) : service.desired_count >= 1 && service.max_count >= service.desired_count])
    error_message = "desired_count must be at least 1, and max_count at least desired_count."
  }
}

variable "archive" {
  description = "Where events and ended runs are archived before the tables delete them: s3://BUCKET/PREFIX, a bucket that exists. Empty: nowhere. A bucket with a key of its own needs that key in kms_key_arn, or a key policy that admits the task role."
  type        = string
  default     = ""

  validation {
    condition     = var.archive == "" || can(regex("^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()=/-]*)?$", var.archive))
    error_message = "archive must be s3://BUCKET/PREFIX, or empty."
  }
}

variable "cpu_architecture" {
  description = "ARM64 or X86_64. The image must be built for it: docker build --platform linux/arm64, or linux/amd64."
  type        = string
  default     = "ARM64"

  validation {
    condition     = contains(["ARM64", "X86_64"], var.cpu_architecture)
    error_message = "cpu_architecture must be ARM64 or X86_64."
  }
}

variable "cluster_arn" {
  description = "An ECS cluster that exists. Empty: one is made."
  type        = string
  default     = ""
}

variable "assign_public_ip" {
  description = "Give tasks a public address. Only for subnets without another way out."
  type        = bool
  default     = false
}

variable "execute_command" {
  description = "Allow `aws ecs execute-command` into the tasks, for finding faults. Their file system can then be written: AWS's agent needs that."
  type        = bool
  default     = false
}

variable "environment" {
  description = "Further variables for the worker, such as INTERLOCK_HTTP_ALLOW, or the INTERLOCK_* that job files refer to. Not for secrets."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.environment) : can(regex("^(INTERLOCK|OTEL)_[A-Z0-9_]+$", name))])
    error_message = "a variable's name begins with INTERLOCK_ or OTEL_."
  }

  # The module sets both names, and a worker starts only if they agree.
  validation {
    condition     = !contains(keys(var.environment), "INTERLOCK_ROLES") && !contains(keys(var.environment), "INTERLOCK_DUTIES")
    error_message = "services sets the roles of the workers (INTERLOCK_ROLES and its earlier name, INTERLOCK_DUTIES): use its duties."
  }
}

variable "secrets" {
  description = "Secrets for the worker by the name of the variable, as ARNs of Secrets Manager or SSM parameters. ECS puts them into the container."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for arn in values(var.secrets) : startswith(arn, "arn:")])
    error_message = "a secret is given by its ARN, never by its value."
  }
}

variable "log_retention_days" {
  description = "How long container logs are kept."
  type        = number
  default     = 365

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days must be a number of days that CloudWatch Logs knows, such as 30, 90 or 365."
  }
}

# --- alerts -----------------------------------------------------------------------------------------------------------

variable "slack_secret_arn" {
  description = "Secrets Manager secret with the bot token. Empty: alerts are lines in the log."
  type        = string
  default     = ""
}

variable "slack_channel" {
  description = "The one channel for all alerts, unless alert_rules says more."
  type        = string
  default     = ""
}

variable "alert_secret_arns" {
  description = "Secrets Manager secrets of the alert targets besides Slack: the webhook's address and the secret that signs its requests, PagerDuty's integration key, the address of a Teams workflow. Empty: no such target."
  type = object({
    webhook_url    = optional(string, "")
    webhook_secret = optional(string, "")
    pagerduty_key  = optional(string, "")
    teams_url      = optional(string, "")
  })
  default  = {}
  nullable = false

  validation {
    condition     = (var.alert_secret_arns.webhook_url == "") == (var.alert_secret_arns.webhook_secret == "")
    error_message = "alert_secret_arns must have both webhook_url and webhook_secret, or neither: a webhook's requests are signed."
  }
}

variable "alert_rules" {
  description = "Text of the routing of alerts (see docs/alerts.md): which alerts go to which channel. Empty: all go to slack_channel."
  type        = string
  default     = ""
}

variable "alarm_topic_arn" {
  description = "SNS topic for CloudWatch alarms. Empty: the alarms notify nobody."
  type        = string
  default     = ""
}

variable "alarms" {
  description = <<-TEXT
    Changes to alarms, by name, such as { runs-failed = { enabled = true, threshold = 20 }, loop-lag = { enabled = false } }.
    `threshold` is in the unit of the metric, `minutes` the time it is measured over. All alarms are on, except runs-failed:
    each failed run is an alert already.
  TEXT
  type = map(object({
    enabled   = optional(bool)
    threshold = optional(number)
    minutes   = optional(number)
  }))
  default = {}

  validation {
    condition = alltrue([for name in keys(var.alarms) : contains([
      "heartbeat", "consumer-lag", "relay-lag", "loop-lag", "sessions-lost", "dead-letters", "runs-failed", "data-loss", "alert-failure",
      "errors", "dlq", "waiting", "throttled", "system-errors", "failed-invocations", "tasks-missing",
      "web-unhealthy", "web-errors", "web-slow",
    ], name)])
    error_message = "alarms has a name that no alarm has; see deploy/runbook.md for all of them."
  }

  validation {
    condition     = alltrue([for alarm in values(var.alarms) : alarm.minutes == null ? true : alarm.minutes >= 1 && alarm.minutes <= 1440 && floor(alarm.minutes) == alarm.minutes])
    error_message = "minutes must be a whole number from 1 to 1440."
  }
}

variable "heartbeat_url" {
  description = "Address outside AWS that Interlock calls while everything works; the service behind it alerts when the calls stop."
  type        = string
  default     = ""

  validation {
    condition     = var.heartbeat_url == "" || startswith(var.heartbeat_url, "https://")
    error_message = "heartbeat_url must begin with https://."
  }
}

# --- the sensor inbox -------------------------------------------------------------------------------------------------

variable "inbox_bucket_arns" {
  description = "S3 buckets that may send notifications to the sensors queue."
  type        = list(string)
  default     = []
}

variable "inbox_topic_arns" {
  description = "SNS topics that may send to the sensors queue."
  type        = list(string)
  default     = []
}

variable "inbox_rules" {
  description = "Text of the inbox rules (see docs/inbox.md): which message becomes which sensor."
  type        = string
  default     = ""
}

# --- the console ------------------------------------------------------------------------------------------------------

variable "web" {
  description = <<-TEXT
    The console and the HTTP API as a service of their own, behind a load balancer of yours that signs people in with OIDC.
    Null: none. `listener_arn` is an HTTPS listener of an application load balancer, to which rules for the host of
    `public_url` are added from `rule_priority` on (three at most). `operators` may act: `user:NAME` or `group:NAME`,
    compared in full; everyone else who signs in reads. `tokens_secret_arn` names a secret with the tokens of programs, as
    INTERLOCK_WEB_TOKENS has them. The default size is enough for 2,000 pipelines; for 10,000 set cpu = 512, memory = 1024.
  TEXT
  type = object({
    public_url                      = string
    vpc_id                          = string
    listener_arn                    = string
    load_balancer_security_group_id = string
    rule_priority                   = optional(number, 100)
    oidc = object({
      issuer                 = string
      authorization_endpoint = string
      token_endpoint         = string
      user_info_endpoint     = string
      client_id              = string
      scope                  = optional(string, "openid email")
      session_timeout        = optional(number, 43200)
    })
    operators         = optional(list(string), [])
    tokens_secret_arn = optional(string, "")
    desired_count     = optional(number, 2)
    cpu               = optional(number, 256)
    memory            = optional(number, 512)
  })
  default = null

  validation {
    condition     = var.web == null ? true : can(regex("^https://[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", var.web.public_url))
    error_message = "web.public_url must be https://HOST, without a port or a path."
  }

  validation {
    condition     = var.web == null ? true : can(regex("^arn:[a-z-]+:elasticloadbalancing:[a-z0-9-]+:[0-9]{12}:listener/app/[^/]+/[^/]+/[^/]+$", var.web.listener_arn))
    error_message = "web.listener_arn must be the ARN of a listener of an application load balancer."
  }

  validation {
    condition     = var.web == null ? true : var.web.rule_priority >= 1 && var.web.rule_priority <= 49998 && floor(var.web.rule_priority) == var.web.rule_priority
    error_message = "web.rule_priority must be a whole number from 1 to 49998; the two numbers after it must be free, too."
  }

  validation {
    condition = var.web == null ? true : alltrue([
      for url in [var.web.oidc.issuer, var.web.oidc.authorization_endpoint, var.web.oidc.token_endpoint, var.web.oidc.user_info_endpoint] :
      startswith(url, "https://")
    ]) && var.web.oidc.client_id != "" && contains(split(" ", var.web.oidc.scope), "openid")
    error_message = "web.oidc needs a client_id, addresses that begin with https://, and a scope with openid."
  }

  validation {
    condition     = var.web == null ? true : alltrue([for each in var.web.operators : can(regex("^(user|group):[^,]+$", each))])
    error_message = "each of web.operators must be user:NAME or group:NAME, without a comma."
  }

  validation {
    condition     = var.web == null ? true : var.web.tokens_secret_arn == "" || can(regex("^arn:[a-z-]+:secretsmanager:", var.web.tokens_secret_arn))
    error_message = "web.tokens_secret_arn must be the ARN of a secret of Secrets Manager, or empty."
  }

  validation {
    condition     = var.web == null ? true : var.web.desired_count >= 1
    error_message = "web.desired_count must be at least 1."
  }

  validation {
    condition = var.web == null ? true : contains(lookup({
      "256"  = [512, 1024, 2048]
      "512"  = range(1024, 4097, 1024)
      "1024" = range(2048, 8193, 1024)
      "2048" = range(4096, 16385, 1024)
      "4096" = range(8192, 30721, 1024)
    }, tostring(var.web.cpu), []), var.web.memory)
    error_message = "Fargate has no task of the size of web: cpu is 256, 512, 1024, 2048 or 4096, and memory about 2 to 8 times as much; https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html has the pairs."
  }
}

variable "web_oidc_client_secret" {
  description = "The secret of the console's OIDC client, for the load balancer. It becomes part of Terraform's state."
  type        = string
  default     = ""
  sensitive   = true
}

variable "web_readonly" {
  description = "Let nobody act through the console and the API: the task role is then without any write."
  type        = bool
  default     = false
}

# --- data -------------------------------------------------------------------------------------------------------------

variable "kms_key_arn" {
  description = "Customer key for tables, queues, logs and secrets. Empty: the keys AWS manages. Its policy must let EventBridge, S3 and CloudWatch Logs use it; the README shows how."
  type        = string
  default     = ""
}

variable "deletion_protection" {
  description = "Keep the tables from being deleted. Switch it off, apply, and only then destroy."
  type        = bool
  default     = true
}

variable "table_names" {
  description = "Tables that exist and are to be used instead of new ones, all four or none: control, joblog, rerun, events. For a migration from the Lambda edition; see docs/migration.md."
  type = object({
    control = string
    joblog  = string
    rerun   = string
    events  = string
  })
  default = null
}

# --- what jobs may be started -----------------------------------------------------------------------------------------

variable "glue_job_arns" {
  description = "Glue jobs that may be started, followed and stopped."
  type        = list(string)
  default     = []
}

variable "job_events" {
  description = "Whether AWS's own events announce the ends of Glue, EMR, EMR Serverless and Step Functions jobs: Interlock then looks at once, and otherwise polls every 15 minutes."
  type        = bool
  default     = true
}

variable "glue_log_groups" {
  description = "Log groups that Glue jobs write to: Interlock reads them to confirm a success. Name those of jobs with `--custom-logGroup-prefix` too."
  type        = list(string)
  default     = ["/aws-glue/*"]

  validation {
    condition     = alltrue([for group in var.glue_log_groups : can(regex("^[A-Za-z0-9/_.#-][A-Za-z0-9/_.#*-]*$", group))])
    error_message = "a log group is named as CloudWatch has it, such as /aws-glue/jobs/logs-v2; * stands for anything, but not for all groups."
  }
}

variable "emr_cluster_arns" {
  description = "EMR clusters that steps may be added to."
  type        = list(string)
  default     = []
}

variable "emr_serverless_application_arns" {
  description = "EMR Serverless applications that jobs may be run on."
  type        = list(string)
  default     = []
}

variable "emr_serverless_role_arns" {
  description = "Execution roles that EMR Serverless jobs may be given."
  type        = list(string)
  default     = []
}

variable "state_machine_arns" {
  description = "Step Functions state machines that may be executed."
  type        = list(string)
  default     = []
}

variable "lambda_function_arns" {
  description = "Lambda functions that may be invoked."
  type        = list(string)
  default     = []
}

variable "job_secret_arns" {
  description = "Secrets that job files may refer to as secretsmanager://NAME#KEY."
  type        = list(string)
  default     = []
}

variable "probe_bucket_arns" {
  description = "Buckets whose objects s3 probes may list and look up, and which queries of Athena may read."
  type        = list(string)
  default     = []
}

variable "probe_catalogue_arns" {
  description = "Catalogues, databases and tables whose partitions glue-partition probes may read, and which queries of Athena may read; name all three levels."
  type        = list(string)
  default     = []
}

variable "probe_table_arns" {
  description = "DynamoDB tables whose items dynamodb-item probes may read."
  type        = list(string)
  default     = []
}

variable "probe_workgroup_arns" {
  description = "Work groups in which sql probes may query Athena. Queries read the buckets and catalogues named above."
  type        = list(string)
  default     = []
}

variable "probe_result_arns" {
  description = "Where Athena writes the results of sql probes: a bucket, or a prefix in it without a slash at its end, as an ARN."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags for everything made here."
  type        = map(string)
  default     = {}
}

variable "allow_plain_http" {
  description = "Let queues be used without TLS. Only for an emulator, which has none."
  type        = bool
  default     = false
}
