# What jobs may be started: nothing, unless it is named.

locals {
  # What is done with jobs, and on what. The tests read this as it is, and hold every call of the program against it:
  # keep it plain.
  job_rights = [
    { sid = "Glue", actions = ["glue:StartJobRun", "glue:GetJob", "glue:GetJobRun", "glue:GetJobRuns", "glue:BatchStopJobRun"], on = ["glue/job"] },
    # Whether a run that Glue calls succeeded really did.
    { sid = "GlueLogs", actions = ["logs:FilterLogEvents"], on = ["glue/logs"] },
    # What jobs printed, for `interlock logs` and the console.
    { sid = "GlueOutput", actions = ["logs:GetLogEvents"], on = ["glue/logs"] },
    { sid = "LambdaOutput", actions = ["logs:FilterLogEvents", "logs:GetLogEvents"], on = ["lambda/logs"] },
    { sid = "Emr", actions = ["elasticmapreduce:AddJobFlowSteps", "elasticmapreduce:DescribeStep", "elasticmapreduce:ListSteps", "elasticmapreduce:CancelSteps"], on = ["emr/cluster"] },
    { sid = "EmrServerless", actions = ["emr-serverless:StartJobRun", "emr-serverless:ListJobRuns"], on = ["emr-serverless/application"] },
    { sid = "EmrServerlessRuns", actions = ["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"], on = ["emr-serverless/run"] },
    { sid = "EmrServerlessRole", actions = ["iam:PassRole"], on = ["emr-serverless/role"] },
    { sid = "StepFunctions", actions = ["states:StartExecution", "states:ListExecutions"], on = ["states/machine"] },
    { sid = "StepFunctionsExecutions", actions = ["states:DescribeExecution", "states:StopExecution"], on = ["states/execution"] },
    { sid = "Lambda", actions = ["lambda:InvokeFunction"], on = ["lambda/function"] },
    # What probes may read.
    { sid = "ProbeObjects", actions = ["s3:GetObject"], on = ["probe/objects"] },
    { sid = "ProbeBuckets", actions = ["s3:ListBucket"], on = ["probe/buckets"] },
    { sid = "ProbePartitions", actions = ["glue:GetPartition"], on = ["probe/catalogue"] },
    { sid = "ProbeItems", actions = ["dynamodb:GetItem"], on = ["probe/tables"] },
    { sid = "ProbeQueries", actions = ["athena:StartQueryExecution", "athena:GetQueryExecution", "athena:GetQueryResults", "athena:StopQueryExecution"], on = ["probe/workgroups"] },
    # Athena reads tables and writes results with the rights of who asks.
    { sid = "ProbeQueriedTables", actions = ["glue:GetDatabase", "glue:GetTable", "glue:GetPartitions"], on = ["probe/queried"] },
    { sid = "ProbeResultBuckets", actions = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"], on = ["probe/result-buckets"] },
    { sid = "ProbeResults", actions = ["s3:GetObject", "s3:PutObject", "s3:ListMultipartUploadParts", "s3:AbortMultipartUpload"], on = ["probe/results"] },
    { sid = "JobSecrets", actions = ["secretsmanager:GetSecretValue"], on = ["secret/jobs"] },
  ]

  log_groups = "arn:${data.aws_partition.this.partition}:logs:${data.aws_region.this.name}:${data.aws_caller_identity.this.account_id}:log-group"

  job_arns = {
    "glue/job" = var.glue_job_arns
    # By its name, and as AWS writes it for what is in it.
    "glue/logs"                  = length(var.glue_job_arns) == 0 ? [] : flatten([for group in var.glue_log_groups : ["${local.log_groups}:${group}", "${local.log_groups}:${group}:*"]])
    "emr/cluster"                = var.emr_cluster_arns
    "emr-serverless/application" = var.emr_serverless_application_arns
    "emr-serverless/run"         = [for arn in var.emr_serverless_application_arns : "${arn}/jobruns/*"]
    "emr-serverless/role"        = var.emr_serverless_role_arns
    "states/machine"             = var.state_machine_arns
    "states/execution"           = [for arn in var.state_machine_arns : "${replace(arn, ":stateMachine:", ":execution:")}:*"]
    "lambda/logs"                = flatten([for arn in var.lambda_function_arns : ["${local.log_groups}:/aws/lambda/${element(split(":", arn), 6)}", "${local.log_groups}:/aws/lambda/${element(split(":", arn), 6)}:*"]])
    "lambda/function"            = flatten([for arn in var.lambda_function_arns : [arn, "${arn}:*"]])
    "secret/jobs"                = var.job_secret_arns
    "probe/buckets"              = var.probe_bucket_arns
    "probe/objects"              = [for arn in var.probe_bucket_arns : "${arn}/*"]
    "probe/catalogue"            = var.probe_catalogue_arns
    "probe/tables"               = var.probe_table_arns
    "probe/workgroups"           = var.probe_workgroup_arns
    "probe/queried"              = length(var.probe_workgroup_arns) == 0 ? [] : var.probe_catalogue_arns
    "probe/results"              = [for arn in var.probe_result_arns : "${arn}/*"]
    # An ARN of a bucket has no slash: what follows one is a prefix.
    "probe/result-buckets" = distinct([for arn in var.probe_result_arns : element(split("/", arn), 0)])
  }

  job_statements = [
    for right in local.job_rights : {
      sid       = right.sid
      actions   = right.actions
      resources = flatten([for name in right.on : local.job_arns[name]])
      partition = []
    } if length(flatten([for name in right.on : local.job_arns[name]])) > 0
  ]
}
