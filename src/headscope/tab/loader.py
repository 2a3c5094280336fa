"""What TensorBoard imports at every start, with or without a record: quick, and it must not fail.

An error while this module is imported would stop the whole `tensorboard` command, so all else is
imported late, where an error costs nothing but the Heads tab.
"""

import logging

from tensorboard.plugins.base_plugin import TBContext, TBLoader, TBPlugin

# TensorBoard's own logger, whose messages reach the terminal of whoever started it.
logger = logging.getLogger("tensorboard")


class HeadsLoader(TBLoader):
    """Make the plugin of the Heads tab, or none where that fails."""

    def load(self, context: TBContext) -> TBPlugin | None:
        """Return the plugin; None, with a warning, where that fails: the other tabs still work."""
        try:
            from headscope.tab.plugin import HeadsPlugin

            return HeadsPlugin(context)
        except Exception as error:
            logger.warning(
                "The Heads tab is left out, because it could not be loaded: %s: %s. "
                "The other tabs are not affected; reinstall headscope.",
                type(error).__name__,
                error,
            )
            return None
