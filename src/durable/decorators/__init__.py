"""`@workflow` and `@step`: ordinary functions made durable, their signatures kept.

A decorated function called outside a run is the plain function. Inside a run a step call is
recorded. Options never mix with the function's own arguments: `charge.options(key="A")(order)`.
"""

from durable.decorators.functions import Durable as Durable
from durable.decorators.registry import code_for as code_for
from durable.decorators.registry import steps as steps
from durable.decorators.registry import workflows as workflows
from durable.decorators.step_functions import AsyncStep as AsyncStep
from durable.decorators.step_functions import StepDecorator as StepDecorator
from durable.decorators.step_functions import StepFunction as StepFunction
from durable.decorators.step_functions import SyncStep as SyncStep
from durable.decorators.step_functions import step as step
from durable.decorators.workflow_functions import AsyncWorkflow as AsyncWorkflow
from durable.decorators.workflow_functions import SyncWorkflow as SyncWorkflow
from durable.decorators.workflow_functions import WorkflowDecorator as WorkflowDecorator
from durable.decorators.workflow_functions import WorkflowFunction as WorkflowFunction
from durable.decorators.workflow_functions import workflow as workflow
