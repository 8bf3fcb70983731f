"""Checks that every dependency may be used under a licence that deny.toml allows."""

import json
import re
import subprocess
import sys
import tomllib


def main():
    with open("deny.toml", "rb") as file:
        licenses = tomllib.load(file)["licenses"]
    allowed = set(licenses["allow"])
    exceptions = {entry["crate"]: set(entry["allow"]) for entry in licenses["exceptions"]}
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    refused = []
    for package in metadata["packages"]:
        name = f"{package['name']} {package['version']}"
        source = package["source"]
        if source is not None and not source.startswith("registry+"):
            refused.append(f"{name}: comes from {source}, not from a registry")
        expression = package["license"]
        if expression is None:
            refused.append(f"{name}: states no licence")
        elif not permits(expression, allowed | exceptions.get(package["name"], set())):
            refused.append(f"{name}: {expression} is not allowed by deny.toml")
    for line in refused:
        print(line, file=sys.stderr)
    print(f"   {len(metadata['packages'])} packages, {len(refused)} refused")
    return 1 if refused else 0


def permits(expression, allowed):
    """Evaluates an SPDX expression: OR needs one allowed side, AND both."""
    # Before SPDX expressions, `A/B` meant `A OR B`.
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def alternatives():
        value = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = conjunction() or value
        return value

    def conjunction():
        value = term()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = term() and value
        return value

    def term():
        token = tokens.pop(0)
        if token == "(":
            value = alternatives()
            if not tokens or tokens.pop(0) != ")":
                raise ValueError(expression)
            return value
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in allowed

    value = alternatives()
    if tokens:
        raise ValueError(expression)
    return value


if __name__ == "__main__":
    assert permits("(MIT OR GPL-3.0) AND ISC", {"MIT", "ISC"})
    assert not permits("MIT AND GPL-3.0", {"MIT"})
    assert permits("GPL-2.0/MIT", {"MIT"})
    assert not permits("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"})
    sys.exit(main())
