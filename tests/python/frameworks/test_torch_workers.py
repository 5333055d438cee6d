"""Workers of PyTorch's DataLoader are forks of a process that has used threads."""

import numpy as np
import torch

import monge


class Distances(torch.utils.data.Dataset):
    """Entropic distances of pairs of point clouds, computed in the worker."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = np.random.default_rng(index).normal(size=(600, 8))
        return monge.solve_sample(x, x + 1, reg=0.5, n_threads=2).value


def test_workers_get_the_bits_of_their_parent():
    data = Distances()
    expected = [data[index] for index in range(len(data))]
    loader = torch.utils.data.DataLoader(data, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [float(value) for value in loader] == expected
