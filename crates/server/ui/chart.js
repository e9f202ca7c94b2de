// Small charts of the values that the overview has collected since the page was opened.
import { html, useEffect, useRef } from './vendor/htm-preact.js';
import uPlot from './vendor/uplot.js';

const HEIGHT = 120;

function colour(of, name) {
  return getComputedStyle(of).getPropertyValue(name).trim() || '#888';
}

/** The end of the time axis while there are no values. */
function now() {
  return Date.now() / 1000;
}

function options(host, label, series) {
  const [ink, line] = [colour(host, '--ink-2'), colour(host, '--line')];
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  const drawn = series.map(({ name, tone }) => {
    const stroke = colour(host, tone);
    return { label: name, stroke, width: 1.5, fill: `${stroke}1f`, points: { show: false } };
  });
  return {
    width: Math.max(host.clientWidth, 120),
    height: HEIGHT,
    // UTC, like all other times in the inspector.
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'),
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true, range: (_u, min, max) => [Math.min(min ?? now(), (max ?? now()) - 10), max ?? now()] }, y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [{ ...axis, size: 22, space: 70 }, { ...axis, size: 44, space: 28 }],
    series: [{}, ...drawn],
  };
}

/** @param {{label: string, series: {name: string, tone: string}[], data: number[][], theme: string}} props */
export function Chart({ label, series, data, theme }) {
  const host = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const made = new uPlot(options(host.current, label, series), data, host.current);
    plot.current = made;
    const fit = new ResizeObserver(() => made.setSize({ width: Math.max(host.current.clientWidth, 120), height: HEIGHT }));
    fit.observe(host.current);
    return () => {
      fit.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme]);
  useEffect(() => plot.current?.setData(data), [data]);
  const last = data.slice(1).map((values) => values[values.length - 1]);
  const said = series.map(({ name }, i) => `${name} ${last[i] ?? 'unknown'}`).join(', ');
  return html`<figure class="chart">
    <figcaption>${label} ${series.map(({ name, tone }, i) => html`<span class="key"><i class=${`swatch ${tone.slice(2)}`}></i>${name}${last[i] === undefined ? '' : ` ${last[i]}`}</span>`)}</figcaption>
    <div ref=${host} role="img" aria-label=${`${label}: ${said}`}></div>
  </figure>`;
}
