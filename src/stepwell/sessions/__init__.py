"""Sessions that people see and the executions behind them: intake, runner and recovery."""
