"""What results and features show: data to compare, pages, charts and figures."""

from likelyshot.report.report_page import report_page, report_summary, write_report_figures, write_report_page
from likelyshot.report.runs import Runs, load_runs
from likelyshot.report.settings import compare_results

__all__ = [
    "Runs",
    "compare_results",
    "load_runs",
    "report_page",
    "report_summary",
    "write_report_figures",
    "write_report_page",
]
