# The console and the HTTP API, as a service of their own behind a load balancer that signs people in. It has no session
# and no lease: it reads the tables, and writes requests that workers answer.

locals {
  has_web               = var.web != null
  web_port              = 8040
  web_tokens_secret_arn = try(var.web.tokens_secret_arn, "")
  web_operators         = try(var.web.operators, [])
  web_host              = try(trimprefix(var.web.public_url, "https://"), "")

  # arn:...:listener/app/NAME/ID/LISTENER belongs to arn:...:loadbalancer/app/NAME/ID.
  web_load_balancer_arn = try(replace(join("/", slice(split("/", var.web.listener_arn), 0, 4)), ":listener/", ":loadbalancer/"), "")
  # As CloudWatch calls it: app/NAME/ID.
  web_load_balancer = try(join("/", slice(split("/", var.web.listener_arn), 1, 4)), "")

  # What it may do, on what, and in which partitions of it (none said: in all). The tests read this as it is, and hold
  # every call of the console and the API against it: keep it plain.
  web_rights = {
    viewer = [
      { sid = "Rows", actions = local.reads, on = ["control", "joblog", "rerun", "events"], partition = [] },
      { sid = "Indexes", actions = ["dynamodb:Query"], on = ["control/index", "events/index"], partition = [] },
      { sid = "LookAtTables", actions = ["dynamodb:DescribeTable"], on = ["control", "joblog", "rerun", "events"], partition = [] },
      { sid = "WebTokens", actions = ["secretsmanager:GetSecretValue"], on = ["secret/web"], partition = [] },
    ]
    operator = [
      # Requests, pauses, sensors, and the deletion of an ended run, which checks that its deadline is not watched.
      { sid = "Requests", actions = ["dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem"], on = ["control"], partition = ["PIPELINE#*"] },
      # Markers of cascades, which begin a run.
      { sid = "Cascades", actions = ["dynamodb:PutItem"], on = ["control"], partition = ["MARKER#*"] },
      # Requests to replay dead letters; a dropped one releases the row that waited for it.
      { sid = "Replays", actions = ["dynamodb:PutItem", "dynamodb:DeleteItem"], on = ["control"], partition = ["GROUP#*"] },
      { sid = "BulkOperations", actions = ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"], on = ["control"], partition = ["BULK#*"] },
      # Records that jobs processed.
      { sid = "Ledgers", actions = ["dynamodb:PutItem", "dynamodb:DeleteItem"], on = ["control"], partition = ["LEDGER#*"] },
      # That the sums of a day must be made again, because one of its runs was deleted.
      { sid = "StaleRollups", actions = ["dynamodb:PutItem"], on = ["control"], partition = ["ROLLUPS"] },
      # Reports of jobs about their own end.
      { sid = "JobReports", actions = ["dynamodb:PutItem"], on = ["joblog"], partition = ["PIPELINE#*"] },
      # The history of a deleted run, if that was asked for.
      { sid = "History", actions = ["dynamodb:DeleteItem"], on = ["joblog", "rerun"], partition = ["PIPELINE#*"] },
      # Who did what, and why.
      { sid = "Audit", actions = ["dynamodb:PutItem"], on = ["events"], partition = ["PIPELINE#*"] },
      { sid = "DeadLetters", actions = ["dynamodb:DeleteItem"], on = ["events"], partition = ["DEADLETTER#*", "DEADLETTERBODY#*"] },
    ]
  }

  # What jobs printed. Of what else is done with jobs, the console does nothing.
  web_job_rights = ["GlueOutput", "LambdaOutput"]

  web_statements = local.has_web ? {
    web = concat(
      [
        for right in concat(local.web_rights.viewer, [for each in local.web_rights.operator : each if !var.web_readonly]) : {
          sid       = right.sid
          actions   = right.actions
          resources = [for name in right.on : local.arns[name]]
          partition = right.partition
        } if right.sid != "WebTokens" || local.web_tokens_secret_arn != ""
      ],
      [for statement in local.job_statements : statement if contains(local.web_job_rights, statement.sid)],
      local.key_statements,
    )
  } : {}

  web_environment = local.has_web ? merge(
    { INTERLOCK_NAME = var.name },
    var.environment,
    {
      INTERLOCK_STORE          = local.store
      INTERLOCK_WEB            = "0.0.0.0:${local.web_port}"
      INTERLOCK_WEB_AUTH       = "alb"
      INTERLOCK_WEB_ALB        = local.web_load_balancer_arn
      INTERLOCK_WEB_ALB_CLIENT = var.web.oidc.client_id
      INTERLOCK_WEB_OPERATORS  = join(",", local.web_operators)
      INTERLOCK_WEB_TOKENS     = local.web_tokens_secret_arn == "" ? "" : "secretsmanager://${local.web_tokens_secret_arn}"
      INTERLOCK_WEB_READONLY   = var.web_readonly ? "1" : "0"
      INTERLOCK_PUBLIC_URL     = var.web.public_url
      INTERLOCK_SERVICE        = "${var.name}-web"
      INTERLOCK_METRICS        = "emf"
    },
  ) : {}
}

# --- its role ---------------------------------------------------------------------------------------------------------

resource "aws_iam_role" "web" {
  count = local.has_web ? 1 : 0

  name               = "${var.name}-web-task"
  description        = "Permissions of the console${var.web_readonly ? ", which changes nothing" : ""}"
  assume_role_policy = data.aws_iam_policy_document.tasks_assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "web" {
  count = local.has_web ? 1 : 0

  name   = "console"
  role   = aws_iam_role.web[0].id
  policy = data.aws_iam_policy_document.task["web"].json
}

# --- the service ------------------------------------------------------------------------------------------------------

resource "aws_ecs_task_definition" "web" {
  count = local.has_web ? 1 : 0

  family                   = "${var.name}-web"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.web.cpu
  memory                   = var.web.memory
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.web[0].arn
  tags                     = var.tags

  runtime_platform {
    cpu_architecture        = var.cpu_architecture
    operating_system_family = "LINUX"
  }

  lifecycle {
    precondition {
      condition     = !contains(keys(var.services), "web")
      error_message = "web is the service of the console: give the service named web in services another name."
    }

    precondition {
      condition     = var.web_readonly || length(local.web_operators) > 0 || local.web_tokens_secret_arn != ""
      error_message = "nobody could act in the console: name web.operators or web.tokens_secret_arn, or set web_readonly."
    }
  }

  # No secrets of jobs, and nothing that can be written: it starts no job.
  container_definitions = jsonencode([{
    name                   = "web"
    image                  = var.image
    command                = ["web"]
    essential              = true
    user                   = "10001:10001"
    readonlyRootFilesystem = true
    privileged             = false
    stopTimeout            = 30
    linuxParameters        = { initProcessEnabled = true, capabilities = { drop = ["ALL"] } }
    environment            = [for name, value in local.web_environment : { name = name, value = value } if value != ""]
    portMappings           = [{ containerPort = local.web_port, hostPort = local.web_port, protocol = "tcp" }]

    healthCheck = {
      # The probe asks the address of this variable. It is not a setting of the task: with health on the console's own
      # address, the metrics would be readable without a sign-in.
      command     = ["CMD", "env", "INTERLOCK_HEALTH=127.0.0.1:${local.web_port}", "python", "-m", "worker.web.probe", "/livez"]
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
        awslogs-stream-prefix = "web"
        mode                  = "non-blocking"
        max-buffer-size       = "25m"
      }
    }
  }])
}

# Beside the groups of all tasks, which have the way out: the only way in.
resource "aws_security_group" "web" {
  count = local.has_web ? 1 : 0

  name        = "${var.name}-web"
  description = "Tasks of the console: reachable from the load balancer only"
  vpc_id      = var.web.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "web" {
  count = local.has_web ? 1 : 0

  security_group_id            = aws_security_group.web[0].id
  description                  = "The load balancer"
  referenced_security_group_id = var.web.load_balancer_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = local.web_port
  to_port                      = local.web_port
  tags                         = var.tags
}

resource "aws_ecs_service" "web" {
  count = local.has_web ? 1 : 0

  name                               = "${var.name}-web"
  cluster                            = local.cluster_arn
  task_definition                    = aws_ecs_task_definition.web[0].arn
  desired_count                      = var.web.desired_count
  launch_type                        = "FARGATE"
  platform_version                   = "LATEST"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  health_check_grace_period_seconds  = 60
  enable_ecs_managed_tags            = true
  propagate_tags                     = "SERVICE"
  tags                               = var.tags

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = concat(var.security_group_ids, [aws_security_group.web[0].id])
    assign_public_ip = var.assign_public_ip
  }

  load_balancer {
    target_group_arn = aws_lb_target_group.web[0].arn
    container_name   = "web"
    container_port   = local.web_port
  }

  # A target group takes targets only once a listener sends to it.
  depends_on = [aws_iam_role_policy.web, aws_iam_role_policy.execution, aws_lb_listener_rule.web_people]
}

# --- the load balancer ------------------------------------------------------------------------------------------------

resource "aws_lb_target_group" "web" {
  #checkov:skip=CKV_AWS_378:TLS ends at the load balancer, and only it reaches the tasks
  count = local.has_web ? 1 : 0

  name                 = "${trimsuffix(substr(var.name, 0, 28), "-")}-web"
  vpc_id               = var.web.vpc_id
  target_type          = "ip"
  protocol             = "HTTP"
  port                 = local.web_port
  deregistration_delay = 10
  tags                 = var.tags

  health_check {
    path                = "/livez"
    protocol            = "HTTP"
    matcher             = "200"
    interval            = 15
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 3
  }
}

# Jobs report their end to an address that is their permission; they cannot sign in.
resource "aws_lb_listener_rule" "web_jobs" {
  count = local.has_web && !var.web_readonly ? 1 : 0

  listener_arn = var.web.listener_arn
  priority     = var.web.rule_priority
  tags         = var.tags

  condition {
    host_header {
      values = [local.web_host]
    }
  }

  condition {
    path_pattern {
      values = ["/api/v1/jobs/*"]
    }
  }

  condition {
    http_request_method {
      values = ["POST"]
    }
  }

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.web[0].arn
  }
}

# Programs send a token, which the API checks; without tokens it refuses them all. Not counted by the secret's ARN, which
# is unknown in a plan that makes the secret, too.
resource "aws_lb_listener_rule" "web_programs" {
  count = local.has_web ? 1 : 0

  listener_arn = var.web.listener_arn
  priority     = var.web.rule_priority + 1
  tags         = var.tags

  condition {
    host_header {
      values = [local.web_host]
    }
  }

  condition {
    path_pattern {
      values = ["/api/v1/*"]
    }
  }

  condition {
    http_header {
      http_header_name = "Authorization"
      values           = ["Bearer *"]
    }
  }

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.web[0].arn
  }
}

# Everyone else signs in.
resource "aws_lb_listener_rule" "web_people" {
  count = local.has_web ? 1 : 0

  listener_arn = var.web.listener_arn
  priority     = var.web.rule_priority + 2
  tags         = var.tags

  lifecycle {
    precondition {
      condition     = var.web_oidc_client_secret != ""
      error_message = "web is given, so web_oidc_client_secret must hold the secret of its OIDC client."
    }
  }

  condition {
    host_header {
      values = [local.web_host]
    }
  }

  action {
    order = 1
    type  = "authenticate-oidc"

    authenticate_oidc {
      issuer                     = var.web.oidc.issuer
      authorization_endpoint     = var.web.oidc.authorization_endpoint
      token_endpoint             = var.web.oidc.token_endpoint
      user_info_endpoint         = var.web.oidc.user_info_endpoint
      client_id                  = var.web.oidc.client_id
      client_secret              = var.web_oidc_client_secret
      scope                      = var.web.oidc.scope
      session_timeout            = var.web.oidc.session_timeout
      on_unauthenticated_request = "authenticate"
    }
  }

  action {
    order            = 2
    type             = "forward"
    target_group_arn = aws_lb_target_group.web[0].arn
  }
}
