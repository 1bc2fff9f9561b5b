"""Context windows, prices and token counts.

`model` resolves a model's name to its facts, `counter` counts text, `message_tokens` counts messages as providers
receive them, `images` contains the providers' image formulas, `budget` is the budget of one call, and `calibration`
adapts to reported usage and continues from the last report. Everything is pure except `model_table`, which reads the
shipped files. All counts are whole base tokens: o200k tokens of a message's JSON form. A model's token factor, the
calibrated one, or that of the prompt's content (`content`) converts them to its own tokens.
"""
