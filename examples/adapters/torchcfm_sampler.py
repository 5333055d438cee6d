"""Monge's exact pairs in a training loop of torchcfm."""

import torch
from torchcfm import ExactOptimalTransportConditionalFlowMatcher

import monge

matcher = ExactOptimalTransportConditionalFlowMatcher(sigma=0.05)
matcher.ot_sampler = monge.OTPlanSampler(method="exact")  # in the place of torchcfm's, which calls POT

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(3, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 2)
)
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
losses = []
for _ in range(300):
    x0 = torch.randn(256, 2)
    x1 = 0.3 * torch.randn(256, 2) + 3 * torch.nn.functional.one_hot(torch.randint(2, (256,)), 2)
    t, xt, ut = matcher.sample_location_and_conditional_flow(x0, x1)
    loss = (model(torch.hstack([xt, t[:, None]])) - ut).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
