#!/usr/bin/env python3
"""Trains with PyTorch and the programs' settings, and prints a line for each seed: pytorch.py DATA_DIR [PROGRAM] [SEEDS].

DATA_DIR holds digits (`ringgrad data make digits`) and, for the programs on MNIST, mnist; shapes, too. Needs
torch. One file, because every function is a program, beside what they share.
"""
import gzip
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

DATA = pathlib.Path(sys.argv[1])


def images(name, split, mean=0.1307, std=0.3081):
    """float32 [N, 1, 28, 28] and int64 [N]."""

    def read(what, header):
        path = DATA / name / f"{split}-{what}-ubyte"
        data = path.read_bytes() if path.exists() else gzip.decompress(pathlib.Path(f"{path}.gz").read_bytes())
        return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)

    pixels = read("images-idx3", 16).view(-1, 1, 28, 28).float() / 255
    return (pixels - mean) / std, read("labels-idx1", 8).long()


def batches(data, size, drop_last=False):
    x, y = data
    order = torch.randperm(len(x))
    for i in range(0, len(x) - (size - 1 if drop_last else 0), size):
        yield x[order[i : i + size]], y[order[i : i + size]]


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in batches(data, 1000)) / len(data[0])


def train(model, data, optimizer, size=64, loss=F.cross_entropy, steps=None):
    for step, (x, y) in enumerate(batches(data, size)):
        if step == steps:
            break
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def gradient_penalty():
    w, b = torch.linspace(-0.5, 0.6, 12).view(3, 4).requires_grad_(), torch.tensor([0.1, -0.2, 0.3])
    x, target = torch.linspace(0, 1.1, 12).view(3, 4).requires_grad_(), torch.linspace(1, -0.6, 9).view(3, 3)
    loss = F.mse_loss(F.linear(x, w, b), target)
    slope = torch.autograd.grad(loss, x, create_graph=True)[0]
    (loss + (slope.norm(2, 1) - 1).pow(2).mean()).backward()
    return w.grad.flatten().tolist()


def regression():
    weight, bias = torch.randn(4, 1) * 5, torch.randn(1) * 5
    fc, step, loss = nn.Linear(4, 1), 0, 1
    optimizer = torch.optim.SGD(fc.parameters(), 0.1)
    while loss >= 1e-3:
        x = torch.randn(32).unsqueeze(1)
        x = torch.cat([x**i for i in range(1, 5)], 1)
        optimizer.zero_grad()
        output = F.smooth_l1_loss(fc(x), x @ weight + bias)
        output.backward()
        optimizer.step()
        loss, step = output.item(), step + 1
    return step, (fc.weight - weight.t()).abs().max().item()


class Small(nn.Module):
    """The network of mnist, and with `drop` of another kind of dist_mnist."""

    def __init__(self, drop):
        super().__init__()
        self.conv1, self.conv2, self.drop = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5), drop
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.reshape(-1, 320))), training=self.training)
        return F.log_softmax(self.fc2(x), 1)


def mnist(name="digits", epochs=6, drop=nn.Dropout2d, size=64):
    model, data = Small(drop()), images(name, "train")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.5)
    for _ in range(epochs):
        model.train()
        train(model, data, optimizer, size, F.nll_loss)
    return accuracy(model, images(name, "t10k"))


def dist_mnist(name="digits", epochs=6):  # two ranks' batches are one of twice as many, averaged
    return mnist(name, epochs, nn.Dropout, 128)


def mnist_main(name="digits", epochs=1, steps=100):
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1))  # fmt: skip
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(epochs):
        model.train()
        train(model, images(name, "train"), optimizer, 64, F.nll_loss, steps)
        scheduler.step()
    return accuracy(model, images(name, "t10k"))


def dcgan(steps=150, width=8):
    def up(i, o, *args):
        return nn.ConvTranspose2d(i, o, *args, bias=False)

    def down(i, o, *args):
        return nn.Conv2d(i, o, *args, bias=False)

    w = width
    generator = nn.Sequential(
        up(100, 4 * w, 4), nn.BatchNorm2d(4 * w), nn.ReLU(), up(4 * w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
        up(2 * w, w, 4, 2, 1), nn.BatchNorm2d(w), nn.ReLU(), up(w, 1, 4, 2, 1), nn.Tanh())  # fmt: skip
    discriminator = nn.Sequential(
        down(1, w, 4, 2, 1), nn.LeakyReLU(0.2), down(w, 2 * w, 4, 2, 1), nn.BatchNorm2d(2 * w), nn.LeakyReLU(0.2),
        down(2 * w, 4 * w, 4, 2, 1), nn.BatchNorm2d(4 * w), nn.LeakyReLU(0.2), down(4 * w, 1, 3), nn.Sigmoid(),
        nn.Flatten(0))  # fmt: skip
    g_optimizer, d_optimizer = (torch.optim.Adam(m.parameters(), 2e-4, (0.5, 0.5)) for m in (generator, discriminator))
    data, logs = images("digits", "train", 0.5, 0.5), []
    while len(logs) < steps:
        for real, _ in batches(data, 64, drop_last=True):
            discriminator.zero_grad()
            d_real = F.binary_cross_entropy(discriminator(real), torch.empty(64).uniform_(0.8, 1))
            d_real.backward()
            fake = generator(torch.randn(64, 100, 1, 1))
            d_fake = F.binary_cross_entropy(discriminator(fake.detach()), torch.zeros(64))
            d_fake.backward()
            d_optimizer.step()
            generator.zero_grad()
            g_loss = F.binary_cross_entropy(discriminator(fake), torch.ones(64))
            g_loss.backward()
            g_optimizer.step()
            logs.append((d_real.item() + d_fake.item(), g_loss.item(), fake.mean().item()))
            if len(logs) == steps:
                break
    return torch.tensor(logs[-(steps // 4) :]).mean(0).tolist()


def custom_dataset(epochs=5):
    x, y = (t[:4000] for t in images("digits", "train", 0.13, 0.31))
    order = torch.randperm(4000)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10), nn.LogSoftmax(1))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        model.train()
        train(model, (x[order[:3000]], y[order[:3000]]), optimizer, 32, F.nll_loss)
    return accuracy(model, (x[order[3000:]], y[order[3000:]]))


def transfer_learning(epochs=3):
    def five(split, first):
        x, y = images("digits", split, 0.13, 0.31)
        chosen = (y >= first) & (y < first + 5)
        return x[chosen], y[chosen] - first

    features = nn.Sequential(
        nn.Conv2d(1, 16, 5, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 64, 5, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())  # fmt: skip
    model = nn.Sequential(features, nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(2):
        train(model, five("train", 0), optimizer)
    before = accuracy(model, five("t10k", 0))
    model = nn.Sequential(features.requires_grad_(False).eval(), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model[1].parameters(), 1e-2)
    for _ in range(epochs):
        train(model, five("train", 5), optimizer)
    return before, accuracy(model, five("t10k", 5))


def gan_ddp(steps=500):  # two ranks' batches of 128 are one of 256
    def network(i, o):
        return nn.Sequential(
            nn.Linear(i, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, o))  # fmt: skip

    def judge(points, label):
        logits = discriminator(points)
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    generator, discriminator = network(8, 2), network(2, 1)
    g_optimizer, d_optimizer = (torch.optim.Adam(m.parameters(), 1e-3, (0.5, 0.999)) for m in (generator, discriminator))
    for _ in range(steps):
        d_optimizer.zero_grad()
        fake = generator(torch.randn(256, 8))
        real = torch.randn(256, 2) * torch.tensor([0.5, 1.5]) + torch.tensor([2.0, -1])
        (judge(real, 1.0) + judge(fake.detach(), 0.0)).backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        judge(fake, 1.0).backward()
        g_optimizer.step()
    points = generator(torch.randn(10000, 8)).detach()
    return points.mean(0).tolist() + points.std(0).tolist()


def reinforce(episodes=100):
    import math

    policy = nn.Sequential(nn.Linear(4, 128), nn.Dropout(0.6), nn.ReLU(), nn.Linear(128, 2), nn.Softmax(1))
    optimizer, running = torch.optim.Adam(policy.parameters(), 1e-2), 10
    for _ in range(episodes):
        x, v, angle, w = (torch.rand(4) * 0.1 - 0.05).tolist()
        logs, up = [], True
        while up and len(logs) < 500:
            choice = torch.distributions.Categorical(policy(torch.tensor([[x, v, angle, w]])))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            push = ((10 if action.item() == 1 else -10) + 0.05 * w * w * math.sin(angle)) / 1.1
            turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / (
                0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
            )
            x, v, angle, w = (
                x + 0.02 * v,
                v + 0.02 * (push - 0.05 * turn * math.cos(angle) / 1.1),
                angle + 0.02 * w,
                w + 0.02 * turn,
            )
            up = abs(x) <= 2.4 and abs(angle) <= 12 * math.pi / 180
        running = 0.05 * len(logs) + 0.95 * running
        returns, sum_ = [], 0
        for _ in logs:
            sum_ = 1 + 0.99 * sum_
            returns.insert(0, sum_)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-7)
        optimizer.zero_grad()
        (-torch.cat(logs) * returns).sum().backward()
        optimizer.step()
    return running


def vae(epochs=3):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
            self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x):
            h = F.relu(self.fc1(x))
            mu, logvar = self.fc21(h), self.fc22(h)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    def loss(x):
        recon, mu, logvar = model(x.view(-1, 784))
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum") + kld

    model, data = VAE(), images("digits", "train", 0, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x, _ in batches(data, 128):
            optimizer.zero_grad()
            loss(x).backward()
            optimizer.step()
    test = images("digits", "t10k", 0, 1)
    with torch.no_grad():
        return sum(loss(x).item() for x, _ in batches(test, 128)) / len(test[0])


def siamese(kind="pairs", epochs=1, channels=8):
    def partner(i, same):
        others = [label for label in range(10) if (label == y[i]) == same]
        place = i
        while place == i:
            places = where[others[torch.randint(len(others), ()).item()]]
            place = places[torch.randint(len(places), ()).item()].item()
        return place

    def apart(a, b):
        return (a - b).pow(2).sum(1)

    (x, y), (test_x, test_y) = images("digits", "train"), images("digits", "t10k")
    where = [torch.where(y == label)[0] for label in range(10)]
    same = torch.rand(len(x)) < 0.5
    first = [partner(i, kind != "pairs" or same[i].item()) for i in range(len(x))]
    second = [partner(i, False) for i in range(len(x))] if kind != "pairs" else None
    c = channels
    net = nn.Sequential(
        nn.Conv2d(1, c, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 5), nn.PReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * c * 16, 256), nn.PReLU(), nn.Linear(256, 256), nn.PReLU(), nn.Linear(256, 2))  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(epochs):
        for i, _ in batches((torch.arange(len(x)), y), 128):
            anchor, other = net(x[i]), net(x[[first[j] for j in i]])
            if kind == "pairs":
                d, t = apart(anchor, other), same[i].float()
                loss = (0.5 * (t * d + (1 - t) * F.relu(1 - (d + 1e-9).sqrt()).pow(2))).mean()
            else:
                loss = F.relu(apart(anchor, other) - apart(anchor, net(x[[second[j] for j in i]])) + 1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        embedded = net(x)
        means = torch.stack([embedded[y == label].mean(0) for label in range(10)])
        return (torch.cdist(net(test_x), means).argmin(1) == test_y).float().mean().item()


def unet(epochs=3, width=8, count=800):
    def double(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
            nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())  # fmt: skip

    class UNet(nn.Module):
        def __init__(self, w):
            super().__init__()
            self.inc, self.outc = double(1, w), nn.Conv2d(w, 3, 1)
            self.downs = nn.ModuleList(double(w << i, w << (i + 1)) for i in range(4))
            self.ups = nn.ModuleList(nn.ConvTranspose2d(w << i, w << (i - 1), 2, 2) for i in range(4, 0, -1))
            self.convs = nn.ModuleList(double(w << i, w << (i - 1)) for i in range(4, 0, -1))

        def forward(self, x):
            levels = [self.inc(x)]
            for down in self.downs:
                levels.append(down(F.max_pool2d(levels[-1], 2)))
            y = levels.pop()
            for up, conv in zip(self.ups, self.convs):
                y = conv(torch.cat([levels.pop(), up(y)], 1))
            return self.outc(y)

    def draw():
        y0, x0, y1, x1 = (torch.rand(4) * 16 + 8).tolist()
        r, h, w = (torch.rand(3) * 5 + 3).tolist()
        y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
        mask = ((y - y0).hypot(x - x0) <= r).long()
        mask[((y - y1).abs() <= h) & ((x - x1).abs() <= w)] = 2
        light = torch.cat([torch.zeros(1), torch.rand(2) * 0.2 + torch.tensor([0.4, 0.8])])
        return (light[mask] + torch.randn(32, 32) * 0.2)[None], mask

    def dice(a, b):
        inter, sets = 2 * (a * b).sum((-1, -2)), a.sum((-1, -2)) + b.sum((-1, -2))
        sets = torch.where(sets == 0, inter, sets)
        return ((inter + 1e-6) / (sets + 1e-6)).mean()

    def one_hot(mask):
        return F.one_hot(mask, 3).permute(0, 3, 1, 2).float()

    x, y = (torch.stack(t) for t in zip(*(draw() for _ in range(count))))
    n, found = count - count // 10, []
    net = UNet(width)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    for _ in range(epochs):
        net.train()
        for a, b in batches((x[:n], y[:n]), 8):
            out = net(a)
            loss = F.cross_entropy(out, b) + 1 - dice(out.softmax(1).flatten(0, 1), one_hot(b).flatten(0, 1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        net.eval()
        with torch.no_grad():
            scores = [dice(one_hot(net(a).argmax(1))[:, 1:].flatten(0, 1), one_hot(b)[:, 1:].flatten(0, 1))
                      for a, b in batches((x[n:], y[n:]), 8, drop_last=True)]  # fmt: skip
        found.append(torch.stack(scores).mean().item())
        scheduler.step(found[-1])
    return max(found)


def sentence():
    def one_of(words):
        return words.split()[torch.randint(len(words.split()), ()).item()]

    def nouns(plural):
        adjectives = [one_of("small big red old quiet wild") for _ in range(torch.randint(3, ()).item())]
        noun = one_of("cat dog bird horse tree girl boy king")
        return ["these" if plural else "a", *adjectives, noun + ("s" if plural else "")]

    plural = torch.rand(()).item() < 0.5
    verb = one_of("see like find know want hear") + ("" if plural else "s")
    return " ".join([*nouns(plural), verb, *nouns(torch.rand(()).item() < 0.5), "."])


def word_language_model(epochs=4, size=32, bptt=16):
    class RNNModel(nn.Module):
        def __init__(self, ntoken):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(ntoken, size)
            self.rnn, self.decoder = nn.LSTM(size, size, 2, dropout=0.2), nn.Linear(size, ntoken)
            self.decoder.weight = self.encoder.weight
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

        def forward(self, x, hidden):
            y, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
            return self.decoder(self.drop(y)).flatten(0, 1), tuple(h.detach() for h in hidden)

    words = {}

    def columns(lines, n):
        ids = [words.setdefault(w, len(words)) for _ in range(lines) for w in [*sentence().split(), "<eos>"]]
        return torch.tensor(ids[: len(ids) // n * n]).view(n, -1).t()

    def evaluate(data):
        model.eval()
        hidden, total = None, 0
        with torch.no_grad():
            for i in range(0, len(data) - 1, bptt):
                y, hidden = model(data[i : i + bptt][: len(data) - 1 - i], hidden)
                total += F.cross_entropy(y, data[i + 1 : i + 1 + bptt].flatten(), reduction="sum").item()
        return total / (len(data) - 1) / data.size(1)

    text, valid, test = columns(3000, 20), columns(300, 10), columns(300, 10)
    model, lr, best = RNNModel(len(words)), 20, float("inf")
    for _ in range(epochs):
        model.train()
        hidden = None
        for i in range(0, len(text) - 1, bptt):
            model.zero_grad()
            y, hidden = model(text[i : i + bptt][: len(text) - 1 - i], hidden)
            F.cross_entropy(y, text[i + 1 : i + 1 + bptt].flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad, alpha=-lr)
        loss = evaluate(valid)
        if loss < best:
            best, kept = loss, {k: v.clone() for k, v in model.state_dict().items()}
        else:
            lr /= 4
    model.load_state_dict(kept)
    return torch.tensor(evaluate(test)).exp().item()


def mingpt(steps=150, count=1000, width=48, block=48):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (t.unflatten(2, (2, -1)).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 * self.training, is_causal=True)
            x = x + F.dropout(self.out(y.transpose(1, 2).flatten(2)), 0.1, self.training)
            y = self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))
            return x + F.dropout(y, 0.1, self.training)

    class GPT(nn.Module):
        def __init__(self, characters):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(characters, width), nn.Embedding(block, width)
            self.h, self.ln_f = nn.Sequential(Block(), Block()), nn.LayerNorm(width)
            self.lm_head = nn.Linear(width, characters, bias=False)
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, 0, 0.02 / (2 if ".out." in name or ".c_proj." in name else 1))
                elif name.endswith("bias"):
                    nn.init.zeros_(p)

        def forward(self, x):
            x = F.dropout(self.wte(x) + self.wpe.weight, 0.1, self.training)
            return self.lm_head(self.ln_f(self.h(x)))

    texts = ["".join(sentence() + "\n" for _ in range(n)) for n in (count, count // 10)]
    characters = sorted(set(texts[0]))
    train_ids, test_ids = (torch.tensor([characters.index(c) for c in text]) for text in texts)

    def loss(ids):
        part = torch.stack([ids[i : i + block + 1] for i in torch.randint(len(ids) - block, (16,)).tolist()])
        return F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())

    model = GPT(len(characters))
    decay = [p for name, p in model.named_parameters() if p.dim() == 2 and "wte" not in name and "wpe" not in name]
    others = [p for p in model.parameters() if all(p is not q for q in decay)]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    for _ in range(steps):
        optimizer.zero_grad()
        loss(train_ids).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return sum(loss(test_ids).item() for _ in range(20)) / 20


def ddp_tutorial():  # two ranks' batches are one of twice as many, averaged
    def inputs(rank):
        return torch.linspace(-1, 1 + rank, 200).view(20, 10), torch.linspace(1 + rank, -1, 100).view(20, 5)

    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.linspace(-0.5, 0.6, p.numel()).view_as(p))
    optimizer, numbers = torch.optim.SGD(model.parameters(), 0.1), []
    for step in range(10):
        optimizer.zero_grad()
        losses = [F.mse_loss(model(x), y) for x, y in (inputs(0), inputs(1))]
        (sum(losses) / 2).backward()
        optimizer.step()
        if step in (0, 9):
            numbers += [losses[0].item(), sum(p.square().sum().item() for p in model.parameters())]
    return numbers


def horovod_mnist(name="digits", epochs=6):  # the same, at twice the rate
    model, data = Small(nn.Dropout2d()), images(name, "train")
    optimizer = torch.optim.SGD(model.parameters(), 0.02, 0.5)
    for _ in range(epochs):
        model.train()
        train(model, data, optimizer, 128, F.nll_loss)
    return accuracy(model, images(name, "t10k"))


def cifar10_mobilenetv2(name="shapes", epochs=2, width=0.25, stages=3, stride=2, lr=0.1):
    def pictures(files):
        raw = torch.cat([torch.frombuffer(bytearray((DATA / folder / f).read_bytes()), dtype=torch.uint8) for f in files])
        raw = raw.view(-1, 3073)
        mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.2010])
        x = raw[:, 1:].reshape(-1, 3, 32, 32).float() / 255
        return (x - mean.view(3, 1, 1)) / std.view(3, 1, 1), raw[:, 0].long()

    def divisible(v):
        new = max(8, int(v + 4) // 8 * 8)
        return new + 8 if new < 0.9 * v else new

    def conv(i, o, kernel=3, stride=1, groups=1):
        return [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU6()]

    class Inverted(nn.Module):
        def __init__(self, i, o, stride, expand):
            super().__init__()
            hidden = i * expand
            self.conv = nn.Sequential(
                *(conv(i, hidden, 1) if expand != 1 else []), *conv(hidden, hidden, 3, stride, hidden),
                nn.Conv2d(hidden, o, 1, bias=False), nn.BatchNorm2d(o))  # fmt: skip
            self.same = stride == 1 and i == o

        def forward(self, x):
            return x + self.conv(x) if self.same else self.conv(x)

    def augmented(x):  # black as in the loader, before the normalisation
        black = -torch.tensor([0.4914, 0.4822, 0.4465]) / torch.tensor([0.2023, 0.1994, 0.2010])
        padded = black.view(1, 3, 1, 1).repeat(len(x), 1, 40, 40)
        padded[:, :, 4:36, 4:36] = x
        dy, dx, flip = torch.randint(9, (len(x),)), torch.randint(9, (len(x),)), torch.rand(len(x)) < 0.5
        x = torch.stack([p[:, a : a + 32, b : b + 32] for p, a, b in zip(padded, dy, dx)])
        return torch.where(flip.view(-1, 1, 1, 1), x.flip(3), x)

    folder = "cifar-10-batches-bin" if name == "cifar10" else name
    settings = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    width = float(width)
    last, channels = divisible(1280 * width), divisible(32 * width)
    layers = conv(3, channels, 3, stride)
    for t, c, n, s in settings[:stages]:
        for i in range(n):
            layers.append(Inverted(channels, divisible(c * width), s if i == 0 else 1, t))
            channels = divisible(c * width)
    net = nn.Sequential(
        *layers, *conv(channels, last, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(last, 10))  # fmt: skip
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out")
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0, 0.01)
            nn.init.zeros_(m.bias)
    data, test = pictures([f"data_batch_{i}.bin" for i in range(1, 6)]), pictures(["test_batch.bin"])
    optimizer = torch.optim.SGD(net.parameters(), lr=float(lr), momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    best = 0
    for _ in range(epochs):
        net.train()
        for x, y in batches(data, 128):
            optimizer.zero_grad()
            F.cross_entropy(net(augmented(x)), y).backward()
            optimizer.step()
        best = max(best, accuracy(net, test))
        scheduler.step()
    return best


def maml_sines(iterations=20000):
    def uniform(low, high):
        return low + (high - low) * torch.rand(()).item()

    def wave():
        amplitude, phase = uniform(0.1, 5), uniform(0, torch.pi)
        return lambda x: amplitude * (x - phase).sin()

    def network(x, w):
        return F.linear(F.relu(F.linear(F.relu(F.linear(x, w[0], w[1])), w[2], w[3])), w[4], w[5])

    def points(count):
        return torch.rand(count, 1) * 10 - 5

    def adapted(of, w, steps, create_graph):
        x = points(10)
        for _ in range(steps):
            grads = torch.autograd.grad(F.mse_loss(network(x, w), of(x)), w, create_graph=create_graph)
            w = [a - 0.01 * g for a, g in zip(w, grads)]
        return w

    weights = [p for layer in (nn.Linear(1, 40), nn.Linear(40, 40), nn.Linear(40, 1)) for p in layer.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    for _ in range(iterations):
        optimizer.zero_grad()
        for _ in range(4):
            of = wave()
            after, x = adapted(of, weights, 1, True), points(10)
            (F.mse_loss(network(x, after), of(x)) / 4).backward()
        optimizer.step()
    loss = 0
    for _ in range(100):
        of, x = wave(), points(100)
        loss += F.mse_loss(network(x, adapted(of, weights, 10, False)), of(x)).item() / 100
    return loss


def wgan_gp(iterations=10000):
    def layers(out):
        return nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                             nn.Linear(128, out))  # fmt: skip

    angle = 2 * torch.pi * torch.arange(8) / 8
    places = 2**0.5 * torch.stack([angle.cos(), angle.sin()], 1)
    generator, critic = layers(2), layers(1)
    of_generator, of_critic = (torch.optim.Adam(m.parameters(), 1e-3, (0.5, 0.9)) for m in (generator, critic))
    for _ in range(iterations):
        for _ in range(5):
            real = places[torch.randint(8, (128,))] + 0.02 * torch.randn(128, 2)
            fake = generator(torch.randn(128, 2)).detach()
            of_critic.zero_grad()
            alpha = torch.rand(128, 1)
            between = (alpha * real + (1 - alpha) * fake).requires_grad_()
            slope = torch.autograd.grad(critic(between), between, torch.ones(128, 1), create_graph=True)[0]
            penalty = 0.1 * (slope.norm(2, 1) - 1).pow(2).mean()
            (critic(fake).mean() - critic(real).mean() + penalty).backward()
            of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(torch.randn(128, 2))).mean()).backward()
        of_generator.step()
    with torch.no_grad():
        return torch.cdist(generator(torch.randn(1000, 2)), places).min(1)[0].mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = sys.argv[2:3] or "gradient_penalty regression mnist dist_mnist mnist_main dcgan custom_dataset transfer_learning gan_ddp reinforce vae siamese unet word_language_model mingpt ddp_tutorial horovod_mnist cifar10_mobilenetv2 maml_sines wgan_gp".split()
    for name in chosen:
        function, *arguments = name.split(":")
        for seed in range(int(sys.argv[3]) if len(sys.argv) > 3 else 5):
            torch.manual_seed(seed)
            result = globals()[function](*(int(a) if a.isdigit() else a for a in arguments))
            numbers = result if isinstance(result, (list, tuple)) else [result]
            print(name, "seed", seed, *(f"{n:.6g}" for n in numbers), flush=True)
            if function == "gradient_penalty":
                break
