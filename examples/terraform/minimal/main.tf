# The least that runs: one service of two tasks that does everything, alerts as lines in its log.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = { source = "hashicorp/aws", version = ">= 5.60, < 7.0" }
  }
}

provider "aws" {
  region = "eu-west-1"
}

module "interlock" {
  source = "../../../deploy/terraform"

  name               = "example-interlock"
  image              = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/interlock:0.1.0"
  subnet_ids         = ["subnet-11111111", "subnet-22222222"]
  security_group_ids = ["sg-11111111"]
}

output "store" {
  value = module.interlock.store
}
