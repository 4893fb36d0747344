"""What results say, as data, as a page and as figures."""

from likelyshot.report.data import report
from likelyshot.report.results_page import report_page, summary, write_report_figures, write_report_page
from likelyshot.report.runs import Runs, load_runs

__all__ = ["Runs", "load_runs", "report", "report_page", "summary", "write_report_figures", "write_report_page"]
