"""Run models of other libraries on the tokens of a budget: `wrap` a model, `unwrap` it again."""
