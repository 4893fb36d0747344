"""The command likelyshot merge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from likelyshot.cli.shared import running
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.evaluation.parts import Merged


def merge(
    folder: Annotated[Path, typer.Argument(help="The folder that all parts were written to.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="For answers, the table to write: .csv, .parquet or .jsonl; for vectors, the features file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Merge the parts that commands wrote with --part.

    Says which parts are missing, if any. The result is the same as without --part, bit for bit.

    For example:

        likelyshot merge answers -o answers.csv
        likelyshot merge results/f
        likelyshot merge features.safetensors.parts
    """
    with running() as (screen, start):
        from likelyshot.evaluation.parts import merge_parts
        from likelyshot.own_data.answer_folder import MANIFEST, merge_answers
        from likelyshot.own_data.parts import classify_parts, is_embedded

        if folder.name.endswith(".safetensors.parts"):
            from likelyshot.encoders.extract import merge_blocks

            features = merge_blocks(folder, output := output or folder.with_suffix(""))
            screen.print(f"Wrote {features.count:,} x {features.dim} features to {output}", soft_wrap=True)
            return
        embedded = is_embedded(folder)
        if output is None and (embedded or (folder / MANIFEST).exists()):
            raise InputError("expected a table to write the answers to: give -o answers.csv, .parquet or .jsonl")
        if embedded and output is not None:
            from likelyshot.cli import own_data

            own_data.check_outputs(folder, output, None, None, None)
            result, how = classify_parts(
                folder, stage=own_data.stages(start), say=lambda sentence: own_data.show(screen, sentence)
            )
            result.save(output, **how)
            own_data.show_problems(screen, result.problems)
            screen.print(f"Wrote {len(result.items):,} answers to {output}", soft_wrap=True)
            return
        if output is not None and (folder / MANIFEST).exists():
            screen.print(f"Wrote {merge_answers(folder, output):,} answers to {output}", soft_wrap=True)
            return
        merged = merge_parts(folder)
        if output is not None:
            raise InputError(f"the results of an evaluation are merged in {folder}: leave out -o")
        _evaluations(screen, folder, merged)


def _evaluations(screen: Console, folder: Path, merged: Merged) -> None:
    """Write what the command without --part would have written."""
    for label, reason in merged.refused.items():
        screen.print(f"Skipped {label}: {reason}", style="yellow", soft_wrap=True)
    results = [result for _, result in merged.results]
    about, command = merged.about, merged.about.get("command")
    if not results:
        raise InputError("none of the methods can be evaluated on these features: see the reasons above")
    if command == "evaluate":
        from likelyshot.cli.evaluate import results_table, write_report
        from likelyshot.evaluation.run import save_results

        save_results(folder, results, sys.argv[1:])
        write_report(folder, results)
        for shots in dict.fromkeys(result.config["shots"] for result in results):
            some = [result for result in results if result.config["shots"] == shots]
            ways, count = some[0].config["ways"], len(some[0].accuracy)
            screen.print(results_table(f"{ways}-way {shots}-shot, {count:,} tasks", some))
    elif command == "sweep":
        from likelyshot.cli.tables import sweep_table
        from likelyshot.evaluation.sweep import gather
        from likelyshot.report.sweep_chart import draw_sweep

        swept = gather(about["method"], about["grid"], results, about["params"], about["digests"])
        swept.save(folder / "sweep.json", sys.argv[1:])
        draw_sweep(swept, folder / "sweep.svg")
        screen.print(sweep_table(about["method"], swept))
    else:
        from likelyshot.cli.reproduce import write_tables
        from likelyshot.evaluation.reproduce import reproduce

        done = reproduce(
            folder,
            command=sys.argv[1:],
            n_tasks=about["tasks"],
            seed=about["seed"],
            device=about["device"],
            full=about["full"],
            known=dict(merged.results),
        )
        for table in write_tables(done):
            screen.print(table)
    screen.print(f"Wrote the results of {command} to {folder}", soft_wrap=True)
