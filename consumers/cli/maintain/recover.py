"""``lethe recover``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import Output, agreed, prepare
from lethe.consumers.contract import topics
from lethe.consumers.registration.committing import committing
from lethe.consumers.registration.log_loss import Plan, Recovery
from lethe.consumers.registration.topic_loss import TopicPlan, TopicRecovery
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import open_runtime


@click.command(short_help="Last resort: continue after the log lost commits, or a topic.")
@click.argument("model", required=False)
@click.option("--topic", metavar="T", help="A topic that is gone, made again, or lost records.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_context
def recover(ctx: click.Context, /, *, model: str | None, topic: str | None, yes: bool) -> int:
    """Continue the log of MODEL from what the store holds, after the log lost acknowledged commits.

    For LOG_RESET and LOG_GAP, if the log cannot be restored. Stop all workers first. If a whole
    partition of lethe.commits lost its end or was recreated, every model in it that needs recovery
    is recovered with MODEL. The command refuses if published versions or receipts are ahead of the
    store.

    With --topic, any other topic: it says which requests may be lost, and goes on with the topic
    that is there, or with a new one. A topic that has lost its end is deleted and created again,
    with the requests that it still has and that may be open. `lethe check` and `lethe receipt` name
    the loss from then on.

    It asks for confirmation.

    \b
    Examples:
      lethe recover churn
      lethe recover --topic lethe.deletions
    """  # noqa: D301 - click looks for the character
    if (model is None) == (topic is None):
        raise click.UsageError("give either MODEL or --topic T")
    settings, out = prepare(ctx)
    if topic is not None:
        return _recover_topic(settings, out, topic, yes=yes)
    return _recover_model(settings, out, str(model), yes=yes)


def _recover_topic(settings: Settings, out: Output, topic: str, *, yes: bool) -> int:
    with (
        open_runtime(settings) as runtime,
        closing(runtime.log.producer()) as producer,
        closing(runtime.log.reader()) as reader,
    ):
        recovery = TopicRecovery(runtime.store(), reader)
        plan = recovery.plan(topic)
        for line in [*plan.faults, *_lost(plan)]:
            click.echo(f"lethe: {line}", err=True)
        if not agreed("All workers must be stopped. Continue without what was lost?", yes=yes):
            out.document({"topic": topic, "recovered": False})
            out.line("nothing was changed")
            return 1
        loss = recovery.run(plan, runtime.log, producer)
    out.document({"recovered": True, **asdict(loss)})
    out.line(f"recovered {topic}: workers continue with the records that are there")
    return 0


def _lost(plan: TopicPlan) -> list[str]:
    """Return what can be said of what was lost, a line for each thing."""
    lines = [plan.loss.statement]
    if plan.unread:
        where = ", ".join(map(str, plan.unread))
        lines.append(
            f"nothing was ever processed from partitions {where}: what they held is unknown"
        )
    if plan.remake:
        lines.append(
            f"{plan.topic} will be deleted and created again, with those of its records that may "
            "still be open"
        )
    return lines


def _recover_model(settings: Settings, out: Output, model: str, *, yes: bool) -> int:
    with (
        open_runtime(settings) as runtime,
        out.progress() as report,
        committing(
            Recovery, runtime, runtime.store(), report, accepting=[topics.COMMITS]
        ) as recovering,
    ):
        plan = recovering.plan(model)
        for line in _lines(plan):
            click.echo(f"lethe: {line}", err=True)
        if not agreed("All workers must be stopped. Continue from the store?", yes=yes):
            out.document({"model_id": model, "recovered": []})
            out.line("nothing was changed")
            return 1
        logged = recovering.run(plan)
    recovered = [
        {
            "model_id": one.commit.model_id,
            "commit": one.commit.number,
            "digest": one.digest,
        }
        for one in logged
    ]
    out.document({"model_id": model, "recovered": recovered})
    for one in recovered:
        out.line(f"recovered {one['model_id']}: commit {one['commit']} continues from the store")
    if not recovered:
        out.line("no model has lost commits; the partition will be read again")
    return 0


def _lines(plan: Plan) -> list[str]:
    """Return what the store and the log hold, one line per model."""
    where = f"partition {plan.index} of {plan.tail.partition.topic}"
    lines = [] if plan.restart is None else [f"{where} lost commits or was recreated"]
    for state, tip in plan.models:
        last = "none of its commits" if tip.head.commit < 0 else f"commit {tip.head.commit} as last"
        lines.append(
            f"model {state.model_id}: the store holds commit {state.head.commit}, version "
            f"{state.version}, {state.meta.rows_live} rows; the log has {last}"
        )
    return lines
