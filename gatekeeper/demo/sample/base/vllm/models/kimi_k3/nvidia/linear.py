"""Projections of the stock decode path."""


def project(x, weight):
    return x @ weight.T


def project_packed(x, weights):
    return [project(x, weight) for weight in weights]
