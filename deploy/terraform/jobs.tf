# What jobs may be started: nothing, unless it is named.

locals {
  job_statements = concat(
    length(var.glue_job_arns) == 0 ? [] : [
      { sid = "Glue", actions = ["glue:StartJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:BatchStopJobRun"], resources = var.glue_job_arns, partition = [] },
      { sid = "GlueLogs", actions = ["logs:FilterLogEvents"], resources = [for group in ["output", "error"] : "arn:${data.aws_partition.this.partition}:logs:${data.aws_region.this.name}:${data.aws_caller_identity.this.account_id}:log-group:/aws-glue/jobs/${group}:*"], partition = [] },
    ],
    length(var.emr_cluster_arns) == 0 ? [] : [
      { sid = "Emr", actions = ["elasticmapreduce:AddJobFlowSteps", "elasticmapreduce:DescribeStep", "elasticmapreduce:ListSteps", "elasticmapreduce:CancelSteps"], resources = var.emr_cluster_arns, partition = [] },
    ],
    length(var.emr_serverless_application_arns) == 0 ? [] : [
      { sid = "EmrServerless", actions = ["emr-serverless:StartJobRun", "emr-serverless:GetJobRun", "emr-serverless:ListJobRuns", "emr-serverless:CancelJobRun"], resources = flatten([for arn in var.emr_serverless_application_arns : [arn, "${arn}/jobruns/*"]]), partition = [] },
    ],
    length(var.emr_serverless_role_arns) == 0 ? [] : [
      { sid = "EmrServerlessRole", actions = ["iam:PassRole"], resources = var.emr_serverless_role_arns, partition = [] },
    ],
    length(var.state_machine_arns) == 0 ? [] : [
      { sid = "StepFunctions", actions = ["states:StartExecution", "states:ListExecutions"], resources = var.state_machine_arns, partition = [] },
      { sid = "StepFunctionsExecutions", actions = ["states:DescribeExecution", "states:StopExecution"], resources = [for arn in var.state_machine_arns : "${replace(arn, ":stateMachine:", ":execution:")}:*"], partition = [] },
    ],
    length(var.lambda_function_arns) == 0 ? [] : [
      { sid = "Lambda", actions = ["lambda:InvokeFunction"], resources = flatten([for arn in var.lambda_function_arns : [arn, "${arn}:*"]]), partition = [] },
    ],
    length(var.job_secret_arns) == 0 ? [] : [
      { sid = "JobSecrets", actions = ["secretsmanager:GetSecretValue"], resources = var.job_secret_arns, partition = [] },
    ],
  )
}
