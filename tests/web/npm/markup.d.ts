// What the scripts find in the markup of aggregator/web, and what they share. The type checker reads it; it is never served.

/** What can be done to an incident or a silence: a row of the table in actions.js. */
interface Act {
  title: string;
  button: string;
  /** The scope that a token needs for it. */
  scope: string;
  method: "POST" | "DELETE";
  path(data: ActData): string;
  fields(data: ActData): Field[];
}

type ActName = "acknowledge" | "unacknowledge" | "silence" | "unsilence";

/** The data of a button and of the incident around it. Each act has those that it reads: incident_page.py, alert_list.py. */
interface ActData extends DOMStringMap {
  act: ActName;
  incident: string;
  matchers: string;
  silence: string;
}

/** A field of a dialog. */
type Field = [name: string, label: string, options: Partial<HTMLInputElement>];

/** A fault as the API says it. */
interface Fault {
  error?: { what?: string; cure?: string };
}

/** A chart, as load_chart.py draws it. */
interface Chart extends SVGSVGElement {
  readonly dataset: ChartData;
}

interface ChartData extends DOMStringMap {
  /** When it begins, ms since 1970. */
  start: string;
  /** How long it is. */
  seconds: string;
  /** How far its points are apart, s. */
  step: string;
  unit: string;
  /** What is known: `seconds since the start:value`, by spaces. */
  points: string;
}

/** The drag of a pointer over a chart. */
interface Drag {
  svg: Chart;
  box: DOMRect;
  /** Where on the screen it began. */
  x: number;
  /** At which time of the chart it began, ms since 1970. */
  from: number;
}

interface Countdown extends HTMLElement {
  readonly dataset: DOMStringMap & { countdown: string };
}

interface SignIn extends HTMLFormElement {
  readonly elements: HTMLFormControlsCollection & { token: HTMLInputElement };
}

/** A page that was loaded. */
interface Loaded {
  status: number;
  page: Document;
  /** Which page it is, for what follows it; nothing follows one without. */
  live: string | undefined;
}

/** A page that was asked for before it was wanted. */
interface Ahead {
  url: string;
  /** When it was asked for, ms since this page was opened. */
  at: number;
  found: Promise<Loaded | null>;
}

/** What the selectors of the scripts find. */
interface Found {
  "[data-countdown]": Countdown;
  "[data-incident]": HTMLElement;
  ".actions[hidden]": HTMLElement;
  ".find input": HTMLInputElement;
  "#sign-in": SignIn;
  "button[data-act]": HTMLButtonElement & { readonly dataset: ActData };
  "figure.chart svg[data-points]": Chart;
  "main thead a[href]": HTMLAnchorElement;
}

interface ParentNode {
  querySelector<Selector extends keyof Found>(selector: Selector): Found[Selector] | null;
  querySelectorAll<Selector extends keyof Found>(selector: Selector): NodeListOf<Found[Selector]>;
}

interface Element {
  closest<Selector extends keyof Found>(selector: Selector): Found[Selector] | null;
}

/** What an event happens to: an element in most cases, else the document. */
interface EventTarget {
  closest?: Element["closest"];
}
