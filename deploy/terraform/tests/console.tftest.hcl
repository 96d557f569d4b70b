# What the module plans for the console: who gets in, and with which rights. `make deploy-check` runs it.

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

  web_oidc_client_secret = "a-secret-of-the-tests"
  web = {
    public_url                      = "https://interlock.example.com"
    vpc_id                          = "vpc-11111111"
    listener_arn                    = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:listener/app/example/50dc6c495c0c9188/f2f7dc8efc522ab2"
    load_balancer_security_group_id = "sg-22222222"
    operators                       = ["group:data-oncall"]
    oidc = {
      issuer                 = "https://login.example.com"
      authorization_endpoint = "https://login.example.com/authorize"
      token_endpoint         = "https://login.example.com/token"
      user_info_endpoint     = "https://login.example.com/userinfo"
      client_id              = "interlock-console"
    }
  }
}

run "there_is_none_unless_it_is_asked_for" {
  command = plan

  variables {
    web = null
  }

  assert {
    condition     = length(aws_ecs_service.web) + length(aws_lb_listener_rule.web_people) + length(aws_lb_listener_rule.web_programs) + length(aws_lb_listener_rule.web_jobs) + length(aws_cloudwatch_metric_alarm.web) + length(aws_cloudwatch_metric_alarm.web_loop) == 0
    error_message = "without web, nothing of the console is made"
  }
}

run "people_sign_in" {
  command = plan

  assert {
    condition     = [for action in aws_lb_listener_rule.web_people[0].action : action.type] == ["authenticate-oidc", "forward"]
    error_message = "the load balancer signs people in before it forwards them"
  }

  assert {
    condition     = [aws_lb_listener_rule.web_jobs[0].priority, aws_lb_listener_rule.web_programs[0].priority, aws_lb_listener_rule.web_people[0].priority] == [100, 101, 102]
    error_message = "the rules of jobs and programs come before that of people"
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.web[0].referenced_security_group_id == "sg-22222222" && aws_vpc_security_group_ingress_rule.web[0].from_port == 8040
    error_message = "only the load balancer reaches the tasks"
  }

  assert {
    condition     = aws_ecs_service.web[0].desired_count == 2 && aws_ecs_task_definition.web[0].runtime_platform[0].cpu_architecture == "ARM64"
    error_message = "two tasks, of the same architecture as the workers"
  }

  assert {
    condition     = contains([for statement in local.web_statements["web"] : statement.sid], "Requests") && !contains([for statement in local.web_statements["web"] : statement.sid], "WebTokens")
    error_message = "operators act, and a secret that is not there is not read"
  }
}

run "a_console_that_only_shows_writes_nothing" {
  command = plan

  variables {
    web_readonly = true
  }

  assert {
    condition     = length(aws_lb_listener_rule.web_jobs) == 0
    error_message = "jobs cannot report to a console that changes nothing"
  }

  assert {
    condition     = alltrue(flatten([for statement in local.web_statements["web"] : [for action in statement.actions : can(regex(":(Get|BatchGet|Describe|Query|Filter)", action))]]))
    error_message = "its role reads only"
  }
}

run "a_console_in_which_nobody_could_act_is_refused" {
  command         = plan
  expect_failures = [aws_ecs_task_definition.web]

  variables {
    web = {
      public_url                      = "https://interlock.example.com"
      vpc_id                          = "vpc-11111111"
      listener_arn                    = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:listener/app/example/50dc6c495c0c9188/f2f7dc8efc522ab2"
      load_balancer_security_group_id = "sg-22222222"
      oidc = {
        issuer                 = "https://login.example.com"
        authorization_endpoint = "https://login.example.com/authorize"
        token_endpoint         = "https://login.example.com/token"
        user_info_endpoint     = "https://login.example.com/userinfo"
        client_id              = "interlock-console"
      }
    }
  }
}

run "the_console_is_observed" {
  command = plan

  assert {
    condition     = local.web_environment["INTERLOCK_METRICS"] == "emf" && local.web_environment["INTERLOCK_SERVICE"] == "test-interlock-web"
    error_message = "the console reports its metrics under a name of its own"
  }

  assert {
    condition     = contains(keys(aws_cloudwatch_metric_alarm.tasks_missing), "web") && contains(keys(aws_cloudwatch_metric_alarm.tasks_missing), "worker")
    error_message = "a missing task of the console raises an alarm, like one of the workers"
  }

  assert {
    condition     = { for key, alarm in aws_cloudwatch_metric_alarm.web : key => alarm.metric_name } == { web-unhealthy = "UnHealthyHostCount", web-errors = "HTTPCode_Target_5XX_Count", web-slow = "TargetResponseTime" }
    error_message = "the load balancer's view of the console raises alarms"
  }

  assert {
    condition     = local.web_load_balancer == "app/example/50dc6c495c0c9188"
    error_message = "CloudWatch names a load balancer by the end of its ARN"
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.web_loop["web-loop-lag"].dimensions["Service"] == "test-interlock-web"
    error_message = "the console's event loop has the alarm of a worker's"
  }
}

run "alarms_of_the_console_can_be_tuned" {
  command = plan

  variables {
    alarms = { web-errors = { threshold = 50, minutes = 15 }, web-slow = { enabled = false }, loop-lag = { enabled = false } }
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.web["web-errors"].threshold == 50 && aws_cloudwatch_metric_alarm.web["web-errors"].period == 900 && !contains(keys(aws_cloudwatch_metric_alarm.web), "web-slow") && length(aws_cloudwatch_metric_alarm.web_loop) == 0
    error_message = "thresholds, times and switches are those of alarms"
  }
}
