"""The terminal dashboard, `kilowatch top`. It knows only the aggregator's HTTP API (`api`).

From the wire to the screen, each folder imports only those above it:

- `theme` and `kit/`: text, charts, bars, and the widgets that paint lines of `(text, tone)` pieces. They
  know no cluster. `theme.Tones` makes all styles, and replaces signs where a terminal has only ASCII.
- `state/`: `DashboardState`, all values of one instant as columns. It is replaced, never changed.
- `feed/`: `DashboardFeed` keeps the newest state. It fetches only what the open view `Wants`: columns and
  nodes on a WebSocket, documents (`DocumentRequest`) by GET.
- `past/`: `Past` fetches frames and documents of an earlier time from the aggregator's store.
- `time/`: `TimeControls` decides which state is shown: the newest, a paused, a recent or a past one.
- `tables/`, `map/`: columns, sort orders and filters of tables, and the map of all GPUs.
- `screens/`: a view in each file. It reads a `ViewContext`, and knows nothing of the application.
- `frame/`: what surrounds a view: header, footer, time bar, filter line, palette, export.
- `app.Top` joins these objects and dispatches keys (`keys.KEYS`); `top` starts it, `status` prints the
  cluster once as text.

To add a screen: write `screens/NAME.py` with a subclass of `View` (anything), `ListView` (a table with a
detail beside it) or `PageView` (one thing, scrolled), and name it in `screens.VIEWS`. Draw with a pure
function of `(state, ..., width, height)`, so that a test needs no application:

    def my_lines(state: DashboardState, width: int, height: int) -> list[Line]:
        return [[("power ", "dim"), (watts(state.at_the_wall.watts), "strong")]]

To add a column: a row of the table's columns (`tables.gpu_table.GPU_COLUMNS`, `tables.node_table`, or the
`COLUMNS` of a view), and its metric in `state.readings.COLUMNS` if it is not requested yet. To add a metric
to the map: a row of `state.metrics.METRICS`. To add a filter key: a row in `tables.fields`.

To add a key: a row of `keys.KEYS`, and a method `do_<action>` in the views where it works; for a key of
the frame in `app.Top`, `frame.item_keys` or `frame.time_keys`, and its action in the `FRAME_KEYS` of the views where it makes
sense; for one that moves in time a row of `time.timebar.ACTIONS`.
"""
