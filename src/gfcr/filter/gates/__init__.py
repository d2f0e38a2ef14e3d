"""Gates: what an answer must be like before anybody judges whether it is right. A gate lowers false negatives and never makes them: it
refuses only what no verifier behind it could find right.
"""
