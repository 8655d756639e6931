/** Work that waits until its part of the page comes into view. */

import { useEffect, useRef, useState } from "../html.js";

/** A ref for an element, and whether it has been near the view. */
export const useSeen = () => {
  const place = useRef(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    if (isSeen || place.current === null) return undefined;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) setSeen(true);
    }, { rootMargin: "300px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [isSeen]);
  return { place, isSeen };
};
