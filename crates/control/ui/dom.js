// Helpers for elements. Text is always set as text, so that a tenant's name cannot become markup.

/** Returns the element of an identifier. */
export const at = (id) => document.getElementById(id);

/** Makes an element: `h("td", { class: "number" }, "7")`. Properties that begin with `on` listen. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element if it differs, to avoid layout work. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets or removes an attribute, if that changes something. */
export function mark(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Updates the children of `parent` to match `items`: adds, moves and removes them by key, so that focus and
 * selection stay where they are.
 */
export function keep(parent, items, keyOf, make, update) {
  const known = parent.known ??= new Map();
  const wanted = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let child = known.get(key);
    if (!child) known.set(key, child = make(item));
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const [key, child] of known) {
    if (wanted.has(key)) continue;
    child.remove();
    known.delete(key);
  }
}
