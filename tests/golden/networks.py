"""The peers' networks: the models of models/ in PyTorch, with the same names of parameters."""

from torch import nn
from torch.nn import functional as F


class ConvNet(nn.Module):
    """The MNIST ConvNet: (conv 5×5, BN, ReLU, pool) × 2, linear."""

    def __init__(self, classes=10):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.layer2 = nn.Sequential(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(7 * 7 * 32, classes)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


class LeNet5(nn.Module):
    """LeCun et al. 1998, with ReLU and max pooling, as everybody trains it today. 61,706 parameters."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class CifarBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut. If the shape changes, option A takes every second pixel and pads the
    channels with zeros, half on either side. Option B is a 1×1 convolution with BN (He et al. 2015 §3.3, §4.2)."""

    def __init__(self, inputs, outputs, stride, option):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.padding = (outputs - inputs) // 2
        if self.padding and option == "B":
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if hasattr(self, "downsample"):
            x = self.downsample(x)
        elif self.padding:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(y + x)


class CifarResNet(nn.Module):
    """ResNet-(6n+2) for CIFAR: 16, 32, 64 channels, n blocks each (He et al. 2015 §4.2)."""

    def __init__(self, n, option="A", classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self._stage(16, 16, n, 1, option)
        self.layer2 = self._stage(16, 32, n, 2, option)
        self.layer3 = self._stage(32, 64, n, 2, option)
        self.fc = nn.Linear(64, classes)

    @staticmethod
    def _stage(inputs, outputs, n, stride, option):
        first = CifarBlock(inputs, outputs, stride, option)
        return nn.Sequential(first, *[CifarBlock(outputs, outputs, 1, option) for _ in range(n - 1)])

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def torchvision_resnet(name, classes):
    import torchvision  # here, since it takes as long as torch itself and only these need it

    return getattr(torchvision.models, name)(num_classes=classes)


def with_cifar_stem(name):
    """torchvision's ResNet with a 3×3 convolution of stride 1 and no pooling in front, for 32×32 images."""
    model = torchvision_resnet(name, 10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


# name -> (builder, shape of one input, classes, number of trainable parameters)
NETWORKS = {
    "cnn": (ConvNet, (1, 28, 28), 10, 29_034),
    "lenet": (LeNet5, (1, 28, 28), 10, 61_706),
    "resnet20": (lambda: CifarResNet(3, "A"), (3, 32, 32), 10, 269_722),
    "resnet20b": (lambda: CifarResNet(3, "B"), (3, 32, 32), 10, 272_474),
    "resnet18": (lambda: with_cifar_stem("resnet18"), (3, 32, 32), 10, 11_173_962),
    "resnet50": (lambda: with_cifar_stem("resnet50"), (3, 32, 32), 10, 23_520_842),
    "resnet18_imagenet": (lambda: torchvision_resnet("resnet18", 1000), (3, 64, 64), 1000, 11_689_512),
    "resnet50_imagenet": (lambda: torchvision_resnet("resnet50", 1000), (3, 64, 64), 1000, 25_557_032),
}


def build(name):
    """The network, with PyTorch's own initial weights. Checks the number of parameters."""
    make, _, _, expected = NETWORKS[name]
    model = make()
    count = sum(p.numel() for p in model.parameters())
    assert count == expected, f"{name}: {count} parameters, expected {expected}"
    return model
