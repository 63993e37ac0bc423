"""The live terminal dashboard, talking only to the aggregator's HTTP API.

How it hangs together, from the wire to the glass:

- `feed.feed.Feed` keeps a `state.Board` (columns, never objects per GPU; `documents` beside them) and
  asks only for what the view on the screen `Wants`: columns and nodes on the WebSocket (packed, as
  float32), documents (`Ask`) by GET. `feed.http` is all of HTTP that this takes; `messages/` is what
  is said.
- `app.Top` is the frame, joined of the parts in `frame/`: what it knows (`state`), header, band and
  footer (`drawing`), `filtering`, `times`, `places`, `taking`; key map (`keys.KEYS`) and dialogs. It
  draws once per data frame. `timebar.Clock` decides which state is shown: now, a paused one, or
  one of the `trail`.
- `screens/` has a view in each file. A view says what it `wants`, draws itself from
  `self.top.shown`, and has a method `do_<action>` for each key that it understands.
- `kit/` has what views are made of: pure functions from columns to lines of `(text, tone)` pieces
  (`grid`, `heatmap`, `chart`, `bars`), and the widgets that paint them (`surface.Surface`, `fleetmap.FleetMap`,
  `table.VirtualTable`). A widget owns pixels, never data: `widget.show(drawing)` is one refresh.
- `lean` and `painted` keep it small and quick; `python -m bench.dashboard` measures both.
- `theme.Tones` is the only door to the terminal: it turns tones into styles, and text into ASCII
  where that is asked for. No view knows a colour. Names from strangers pass `text.clean`.

To add a screen: write `screens/NAME.py` with a class of `View` (anything), `ListView` (a table with
a detail beside it) or `PageView` (one thing, scrolled), and name it in `screens.VIEWS`. Keep the
drawing a function of `(state, ..., width, height)`, so that a test needs no application:

    def my_lines(state: Board, width: int, height: int) -> list[Line]:
        return [[("power ", "dim"), (watts(state.power.wall_watts), "strong")]]

To add a metric to the map: a row of `metrics.METRICS`. To add a key: a row of `keys.KEYS`, and a
method `do_<action>` where it does something. To add a filter key: a row in `fields`.
"""
