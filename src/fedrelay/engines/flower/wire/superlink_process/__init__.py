"""What runs in the process of the SuperLink: Flower's own, with additions.

- The Control interface, which registers and unregisters nodes and starts and stops runs, needs a token
  (`control_token.py`). As shipped, it answers everybody who reaches the port.
- Who waits for a message is told when there is one (`new_message_signal.py`), instead of asking again and again. The
  signal hands out nothing itself: one that is lost loses no message.
- A message that did not arrive is handed out again (`redelivery.py`). Flower's SuperLink hands it out once, and does
  not learn whether it arrived.
- Strangers cannot fill its memory with requests (`http_head_limits.py`, `request_limits.py`).

The process imports nothing of FedRelay outside this folder: that would take seconds and a few hundred megabytes.
"""
