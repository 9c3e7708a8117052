"""Engines: who carries out hops. An engine knows nothing of methods; methods know nothing of engines."""
