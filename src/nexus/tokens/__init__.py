"""What models can hold and cost, and how text and images are counted.

`model` resolves a model's name to its facts; `counter` counts text; `measure` counts messages as providers see them;
`images` has the providers' image formulas; `budget` is the budget of one call; `calibration` learns from what providers
report, and `anchor` counts on from the last report. All are pure: files are read in `model_table` alone. Tokens are always
whole numbers of one unit, the base count (o200k of a message's JSON wire form); a model's `token_factor`, or the one
learned in its place, says how many of its own tokens one of these is.
"""
