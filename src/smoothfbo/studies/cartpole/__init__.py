"""The paper's reinforcement-learning study (Section 6.2): CartPole whose rewarded interval drifts."""
