"""Published claims, each with an experiment that could contradict it and a criterion that was fixed beforehand."""
