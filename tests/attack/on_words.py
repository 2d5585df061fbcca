"""Command lines of words that exist, in an order and with values that nobody meant."""

WORDS = """train eval predict data inspect graph trace doctor launch bench list make get check ddp allreduce ops digits shapes
mnist cifar10 resnet20 cnn run none runs/latest --model --data --batch --epochs --lr --ranks --parallel --transport --out
--resume --init --max-steps --save-every --optimizer --schedule --warmup --seed --json -q --plain --help --version --dtype
--amp --conv --crop --cutout --flip --no-flip --steps --bucket-mb -n --nnodes --node-rank --log-dir --confusion --""".split()
VALUES = ["0", "1", "2", "-1", "7", "12", "999999999999999999999", "1e300", "nan", "inf", "", " ", "x", "é", "a" * 5000,
          "--", "-", "../..", "/dev/null", "/dev/full", "/proc/self/mem", ".", "adam", "sgd", "fp16", "bf16", "O2", "tcp", "shm", "ddp"]
LIMITS = ["--max-steps", "1", "--batch", "12"]  # what is well-formed by chance is short


def words(job, random):
    job.write_data()
    line = [random.choice(WORDS if random.random() < 0.7 else VALUES) for _ in range(random.randrange(1, 7))]
    if line[0] == "train":
        line[1:1] = LIMITS
    if {"launch", "bench", "get"} & set(line):  # they run what they are told, measure for seconds, or ask the network
        line.append("--no-such-option")
    job.run(*line, codes=range(9))
