"""`make conversions`: judge every setting, and print what became of them."""

from __future__ import annotations

import sys
from collections import Counter

from tests.proof.conversions.judge import judge
from tests.proof.conversions.settings import settings


def main() -> int:
    """Run the command."""
    refusals: Counter[str] = Counter()
    accepted, impossible, faults = [], 0, []
    for setting in settings():
        verdict = judge(setting)
        if verdict is None:
            impossible += 1
            continue
        if verdict.fault is not None:
            faults.append(f"{setting.name}: {verdict.fault}")
        elif verdict.refused is not None:
            refusals[verdict.refused.split(";")[0][:90]] += 1
        else:
            accepted.append((verdict.distance / verdict.allowed, setting.name))
    judged = len(accepted) + sum(refusals.values()) + len(faults)
    print(f"{judged} settings judged; {impossible} that scikit-learn itself refuses are left out")
    print(f"  accepted, and right      {len(accepted)}")
    worst = max(accepted)
    print(f"    nearest to its limit: {worst[0]:.2f} of it, {worst[1][:80]}")
    print(f"  refused by name          {sum(refusals.values())}")
    for message, count in refusals.most_common():
        print(f"    {count:3d}  {message}")
    print(f"  wrong                    {len(faults)}")
    for fault in faults:
        print(f"    {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
