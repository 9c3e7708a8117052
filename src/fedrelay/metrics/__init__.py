"""What a run achieved: classification scores, learning curves, forgetting, grouping quality and cost."""
