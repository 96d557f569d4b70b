"""Builds the runners of the targets on AWS from one shared client."""

from worker.core.model.pipeline import JobType
from worker.jobs.aws.client import Aws
from worker.jobs.aws.emr import EmrRunner
from worker.jobs.aws.emr_serverless import EmrServerlessRunner
from worker.jobs.aws.glue import GlueRunner
from worker.jobs.aws.lambda_ import LambdaRunner
from worker.jobs.aws.step_functions import StepFunctionRunner
from worker.jobs.runner import Runner
from worker.jobs.secrets import SecretSource
from worker.runtime.clock import Clock
from worker.store.repos.sensors import Sensors


def aws_runners(aws: Aws, clock: Clock, secrets: SecretSource, sensors: Sensors) -> dict[JobType, Runner]:
    """Return one runner per target on AWS; `sensors` are for asynchronous Lambda functions."""
    return {
        JobType.GLUE: GlueRunner(aws, clock),
        JobType.EMR: EmrRunner(aws, clock),
        JobType.EMR_SERVERLESS: EmrServerlessRunner(aws, clock),
        JobType.STEP_FUNCTION: StepFunctionRunner(aws),
        JobType.LAMBDA: LambdaRunner(aws, clock, secrets, sensors),
    }
