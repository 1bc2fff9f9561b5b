"""Context windows, prices and token counts.

`model` resolves a model's name to its facts, `counter` counts text, `measure` counts messages as providers receive them,
`images` contains the providers' image formulas, `budget` is the budget of one call, `calibration` adapts to reported
usage, and `anchor` continues from the last report. Everything is pure except `model_table`, which reads the shipped files.
All counts are whole base tokens: o200k tokens of a message's JSON form. A model's `token_factor`, the calibrated one, or
that of the prompt's content (`content`) converts them to its own tokens.
"""
