"""From which confidence a run answers: what the settings of a command say."""

from headscope.ground.errors import ConfigError, warn
from headscope.model.objective import MultiLabel
from headscope.runs.abstaining import accuracy_curve, least_confidence
from headscope.runs.folder import load_validation
from headscope.runs.run import Run
from headscope.settings.commands import Abstains


def least_of(config: Abstains, run: Run) -> float | None:
    """Return the confidence from which the one key that is given answers; None without a key.

    Raises:
        ConfigError: for a run with several labels a text, or a target out of reach.
        RunError: if the run keeps no logits of its validation texts, and the key needs them.
    """
    if config.abstains_by() and isinstance(run.objective, MultiLabel):
        (key,) = config.abstains_by()
        raise ConfigError(f"{key}: expected a run with one label a text; {run.folder} has several")
    if config.target_accuracy is None:
        return config.min_confidence
    logits, labels = load_validation(run.folder)
    confidence, likeliest = run.reading.probabilities(logits.double()).max(dim=1)
    curve = accuracy_curve(confidence.numpy(), (likeliest == labels).numpy())
    least = least_confidence(curve, config.target_accuracy)
    if least == curve[-1][0]:
        warn(
            f"target_accuracy={config.target_accuracy}: all {len(labels)} validation texts are "
            f"answered, {curve[-1][2]} of them right, so the target is met without abstaining; "
            "texts of a class that training has not seen are answered too, often surely"
        )
    return least
