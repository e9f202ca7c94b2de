// The reader's place on a page of live data: the focus, the selected text and the scroll position survive every redraw.
import { useLayoutEffect } from './vendor/htm-preact.js';

/**
 * Keeps the reader's place across a redraw of the calling component. A row that moves keeps its focus. The focus of a row that is removed
 * goes to the row below it, or above it when there is none.
 */
export function usePlace() {
  // A component is drawn before its changes reach the document, and layout effects run right after that.
  const before = note();
  useLayoutEffect(() => before && restore(before));
}

/** Returns the row or article around a link, which is drawn, moved and removed as a whole. @param {Element} of */
function rowAround(of) {
  return of.closest('tr, article') || of;
}

/** @param {Element} of */
function topOf(of) {
  return rowAround(of).getBoundingClientRect().top;
}

/** @param {Element} of */
function isVisible(of) {
  const { top, bottom } = rowAround(of).getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

function note() {
  const main = document.querySelector('main');
  if (!main) return null;
  const rows = /** @type {HTMLElement[]} */ ([...main.querySelectorAll('[data-row]')]);
  const active = /** @type {HTMLElement | null} */ (document.activeElement);
  const focused = active && active !== main && main.contains(active) ? active : null;
  // At the top of a page new rows push the others down, unless a visible row has the focus.
  const anchor = focused && isVisible(focused) ? focused : scrollY > 0 ? rows.find(isVisible) : undefined;
  return { candidates: focused ? candidates(focused, rows, main) : [], anchor, top: anchor ? topOf(anchor) : 0, selected: selection(main) };
}

/** Returns the candidates for the focus, best first. @param {HTMLElement} focused @param {HTMLElement[]} rows @param {HTMLElement} main */
function candidates(focused, rows, main) {
  const own = rows.filter((row) => rowAround(row) === rowAround(focused));
  const below = rows.filter((row) => focused.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_FOLLOWING);
  const above = rows.filter((row) => focused.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_PRECEDING).reverse();
  return [focused, ...own, ...below, ...above, main];
}

/** @param {Element} main @returns {[Node, number, Node, number] | null} */
function selection(main) {
  const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = getSelection() ?? { isCollapsed: true };
  if (isCollapsed || !anchorNode || !focusNode || !main.contains(anchorNode) || !main.contains(focusNode)) return null;
  return [anchorNode, anchorOffset ?? 0, focusNode, focusOffset ?? 0];
}

/** @param {NonNullable<ReturnType<typeof note>>} before */
function restore({ candidates, anchor, top, selected }) {
  const next = candidates.find((one) => one.isConnected);
  const lost = !document.activeElement || document.activeElement === document.body;
  if (next && lost) next.focus({ preventScroll: true });
  if (selected) reselect(selected);
  const kept = anchor?.isConnected ? anchor : anchor && next?.hasAttribute('data-row') ? next : null;
  if (kept) scrollBy(0, topOf(kept) - top);
}

/** Restores a text selection whose elements were moved. @param {[Node, number, Node, number]} selected */
function reselect([from, start, to, end]) {
  const now = getSelection();
  if (!now || !from.isConnected || !to.isConnected) return;
  if (now.anchorNode === from && now.anchorOffset === start && now.focusNode === to && now.focusOffset === end) return;
  const within = (/** @type {Node} */ of, /** @type {number} */ at) => Math.min(at, of.nodeType === Node.TEXT_NODE ? (of.nodeValue ?? '').length : of.childNodes.length);
  now.setBaseAndExtent(from, within(from, start), to, within(to, end));
}
